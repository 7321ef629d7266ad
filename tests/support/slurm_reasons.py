"""Every word that a Slurm prints as the reason of a job, and sentences that stand for one."""

from __future__ import annotations

from pathlib import Path

_WORDS = Path(__file__).parent / "data" / "slurm-reasons.txt"


def words() -> list[str]:
    """The words, those of today's Slurm first."""
    lines = _WORDS.read_text(encoding="ascii").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


#: From slurmctld's source (22.05.8 and 26.05), with names as they would be -> the verdict's code.
SENTENCES = {
    "ReqNodeNotAvail, UnavailableNodes:node4": "nodes-down",
    "ReqNodeNotAvail, UnavailableNodes:node[4-5,9]": "nodes-down",
    "ReqNodeNotAvail, Reserved for maintenance": "maintenance",
    "ReqNodeNotAvail, May be reserved for other job": "turn",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions":
        "nodes-down",
    "launch failed requeued held": "launch-failed",
    "launch failure limit exceeded requeued held": "launch-failed",
    "user env retrieval failed requeued held": "launch-failed",
    "job requeued in held state": "held-you",
    "job requeued in special exit state": "held-you",
    "Reservation my_course was deleted": "reservation-gone",
    "Reservation my_course is invalid": "reservation-gone",
    "Reservation my_course, which this job was running under, has ended": "requeued",
    "License request 'matlab:2' is no longer valid, holding job": "held-admin",
    "Job's account not permitted to use this partition (gpu allows lab not poor)": "refused",
    "Job's account not known, so it can't use this partition (gpu allows lab)": "refused",
    "Job's QOS not permitted to use this partition (gpu denies tiny including tiny)": "refused",
    "Job's QOS not known, so it can't use this partition (gpu allows tiny)": "refused",
    "uid 1000 not in group permitted to use this partition (gpu). groups allowed: staff":
        "refused",
    "Job is at or exceeds QOS tiny's group max TRES(cpu) minutes of 60 with 60": "budget",
    "Job is at or exceeds association (acc=poor/user=(null)/part=(null)) group wall limit 6 with 6":
        "budget",
    "Job is at or exceeds QOS tiny's max TRES(cpu) minutes of 60 with 90": "limit-job",
    "Unable to load job batch script": "requeued",
    "Burst buffer pre_run error": "launch-failed",
    "burst_buffer/lua: slurm_bb_data_in: no space": "launch-failed",
    "Resources,JobArrayTaskLimit": "busy",
    "(Priority)": "turn",
    "": "not-looked",
    "(null)": "not-looked",
}  # fmt: skip
