"""Slurm's job states and reasons, and their meaning in plain words.

Source: man squeue, "JOB STATE CODES" and "JOB REASON CODES" (22.05 and 24.05), and
what a real 22.05 printed: reasons there may carry a tail
(`ReqNodeNotAvail, UnavailableNodes:node4`) or be a sentence of their own.
"""

from __future__ import annotations

import re

from tunnelkit.model import JobState
from tunnelkit.scheduler.base import PendingCause

P, R, E, U = JobState.PENDING, JobState.RUNNING, JobState.ENDED, JobState.UNKNOWN

#: native state -> (JobState, plain words; None if the state is clear by itself)
STATES: dict[str, tuple[JobState, str | None]] = {
    "PENDING": (P, None),
    "CONFIGURING": (P, "nodes are allocated and are being made ready"),
    "POWER_UP_NODE": (P, "nodes are being powered up"),
    "REQUEUED": (P, "the job was put back into the queue"),
    "REQUEUE_FED": (P, "the job was put back into the queue"),
    "REQUEUE_HOLD": (P, "the job was put back into the queue and is held"),
    "RESV_DEL_HOLD": (P, "the job is held because its reservation was deleted"),
    "SPECIAL_EXIT": (P, "the job was put back into the queue and is held"),
    "RUNNING": (R, None),
    "RESIZING": (R, "the job is changing its size"),
    "SIGNALING": (R, "the job is being signalled"),
    # Suspended and stopped jobs keep their nodes and processes: the debuggee is frozen.
    "SUSPENDED": (R, "the job is suspended: its processes stand still until it is resumed"),
    "STOPPED": (R, "the job is stopped: its processes stand still but keep their CPUs"),
    # The job's script is over or being killed; with --requeue the job may run again (adapter.py).
    "COMPLETING": (E, "the job is over, its last processes are being cleared away"),
    "STAGE_OUT": (E, "the job is over, its files are being staged out"),
    "COMPLETED": (E, "the job ended by itself"),
    "CANCELLED": (E, "the job was cancelled"),
    "FAILED": (E, "the job's script failed"),
    "TIMEOUT": (E, "the job reached its time limit; `tk up --time` asks for more"),
    "DEADLINE": (E, "the job reached its deadline"),
    "NODE_FAIL": (E, "a node of the job failed; `tk up` asks for another one"),
    "BOOT_FAIL": (E, "a node of the job failed to boot"),
    "LAUNCH_FAILED": (E, "the job could not be launched on its node"),
    "OUT_OF_MEMORY": (
        E,
        "the job used more memory than it had asked for; `tk up --mem` asks for more",
    ),
    "PREEMPTED": (
        E,
        "the job was preempted by one of higher priority; with `tk up --requeue` "
        "such a job comes back",
    ),
    # A federation's sibling took the job over; this cluster does not say which one.
    "REVOKED": (U, "another cluster of the federation took the job"),
}

#: reason -> (PendingCause, plain words); the first pattern that matches its beginning counts.
_REASONS: tuple[tuple[re.Pattern[str], PendingCause, str], ...] = tuple(
    (re.compile(pattern), verdict, words)
    for pattern, verdict, words in (
        (r"None$|$", PendingCause.WAIT, "the scheduler has not looked at the job yet"),
        (r"Resources", PendingCause.WAIT, "waiting for the resources to become free"),
        (r"Priority", PendingCause.WAIT, "jobs with higher priority are in front"),
        (r"DependencyNeverSatisfied", PendingCause.FIX,
         "the job it depends on can never end as asked"),
        (r"Dependency", PendingCause.WAIT, "waiting for the job it depends on"),
        (r"BeginTime", PendingCause.WAIT, "its begin time has not come yet"),
        (r"Licenses", PendingCause.WAIT, "waiting for a licence to become free"),
        (r"ReservationDeleted", PendingCause.FIX, "the reservation it asks for was deleted"),
        (r"Reservation", PendingCause.WAIT, "waiting for its reservation to begin"),
        (r"Prolog|Cleaning|SchedDefer|BurstBuffer|InactiveLimit", PendingCause.WAIT,
         "the scheduler is preparing the job"),
        # A request that no node of this partition can ever meet.
        (r"PartitionTimeLimit", PendingCause.FIX,
         "the time asked for is over the partition's limit"),
        (r"Partition(Node|Min|Max)", PendingCause.FIX, "the number of nodes is outside the "
         "partition's limits"),
        (r"PartitionConfig", PendingCause.FIX,
         "no node of the partition has what was asked for, or "
         "the time asked for is over its limit"),
        (r"BadConstraints|.*node configuration is not available", PendingCause.FIX,
         "no node can give what was asked for"),
        (r"InvalidAccount", PendingCause.FIX, "the account is not valid here"),
        (r"InvalidQOS|QOSNotAllowed", PendingCause.FIX, "the QOS is not valid for this account or "
         "partition"),
        (r"AccountNotAllowed|AccountingPolicy", PendingCause.FIX, "the account may not use this "
         "partition"),
        (r"MaxMemPerLimit", PendingCause.FIX, "more memory was asked for than the limit allows"),
        (r"DeadLine", PendingCause.FIX, "the job can't end before its deadline"),
        # Limits on each single job: no other job's end makes room for this one.
        (r"(Assoc|QOS)Max\w*Per(Job|Node)(Limit)?", PendingCause.FIX,
         "it asks for more than one job may have under this account or QOS"),
        (r"QOSMin", PendingCause.FIX, "it asks for less than this QOS demands"),
        # Limits on all jobs together.
        (r"Assoc|QOS|Max|JobArrayTaskLimit", PendingCause.QUOTA,
         "a limit of your account, QOS or user is used up; it starts when other jobs end"),
        (r"JobHeldUser|ReqHold", PendingCause.HELD,
         "you hold it back: scontrol release JOBID frees it"),
        (r"JobHeldAdmin", PendingCause.HELD, "an administrator holds it back: ask them"),
        (r"JobHoldMaxRequeue|.*requeued.held", PendingCause.HELD,
         "it failed to launch and is held: scontrol release JOBID tries again"),
        (r"ReqNodeNotAvail|NodeDown|Nodes.required.for.job.are|Required.node.not.available",
         PendingCause.HELD, "the node is down, drained or reserved: take another, or wait until it "
         "is back"),
        (r"Partition(Down|Inactive)", PendingCause.HELD,
         "the partition is switched off at the moment"),
    )
)  # fmt: skip


def state_of(native: str) -> tuple[JobState, str | None]:
    """Return the JobState of a native state, and plain words; an unknown state is UNKNOWN."""
    return STATES.get(native, (U, f"Slurm calls its state {native!r}, which tk does not know"))


def judge(reason: str | None) -> tuple[PendingCause, str]:
    """Return the PendingCause of a pending reason, and plain words.

    An unknown reason counts as WAIT, so that no job is cancelled for it.
    """
    text = (reason or "").strip().strip("()")
    for pattern, verdict, words in _REASONS:
        if pattern.match(text):
            return verdict, _with_detail(words, text)
    return PendingCause.WAIT, f"Slurm says {text}"


def _with_detail(words: str, text: str) -> str:
    """Name the nodes that Slurm names after the reason code."""
    match = re.search(r"UnavailableNodes:(\S+)", text)
    return f"{words} ({match[1]})" if match else words
