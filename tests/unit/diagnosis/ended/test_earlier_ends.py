"""What ended an earlier run, or a step that was tried again, is not what ended the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tunnelkit.diagnosis.evidence.end import EndView, LogView
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY, UNKNOWN = Certainty.PROVEN, Certainty.LIKELY, Certainty.UNKNOWN
TRACEBACK = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""


def slurm_end(why: str) -> str:
    """Slurm's line on the end of a run of the job."""
    at = "CANCELLED AT 2026-11-25T19:02:56"
    return f"slurmstepd-n1: error: *** JOB 7 ON n1 {at} DUE TO {why} ***\n"


def two_logs(out: str, err: str) -> EndView:
    """A job with stdout and stderr in two files."""
    return EndView(
        logs=tuple(LogView(f"/h/7.{at}", text, len(text), START_S + 600)
                   for at, text in (("out", out), ("err", err)))
    )  # fmt: skip


def test_slurm_ended_it_before_its_time_limit() -> None:
    silent = job("TIMEOUT", 0, 15, ran_s=2400, limit_s=28_800, reason="InactiveLimit")
    found = verdict(silent)
    assert (found.code, found.certainty) == ("exit-unknown", PROVEN)
    assert "0:40:00 of 8:00:00: its srun or salloc was silent" in found.sentence
    for reason in ("TimeLimit", None):
        found = verdict(replace(silent, reason=reason), "step 1/2\n")
        assert (found.code, found.certainty) == ("exit-unknown", LIKELY)
        assert "0:40:00 of 8:00:00, before its own time limit" in found.sentence
    assert verdict(replace(silent, time_limit_s=None)).code == "timeout"


@pytest.mark.parametrize("why", ["TIME LIMIT", "PREEMPTION", "NODE FAILURE"])
def test_the_end_of_an_earlier_run(why: str) -> None:
    again = job("FAILED", 1, restarts=1)
    line = slurm_end(why)
    found = verdict(again, f"step 1\n{line}step 1\n{TRACEBACK}")
    assert (found.code, found.certainty) == ("exception", PROVEN)
    # The last run wrote nothing, or only to stdout.
    assert verdict(again, TRACEBACK + line).code == "exit-unknown"
    assert verdict(again, end=two_logs("step 1\nstep 2\n", TRACEBACK + line)).code == "exit-unknown"
    found = verdict(again, end=two_logs(f"step 1\n{TRACEBACK}", line))
    assert found.code == "exception"


def test_a_line_of_slurm_against_its_record() -> None:
    found = verdict(job("FAILED", 1), slurm_end("TIME LIMIT") + TRACEBACK)
    assert found.code == "exception"
    found = verdict(job("FAILED", 1), slurm_end("PREEMPTION"))
    assert (found.code, found.certainty) == ("preempted", LIKELY)
    found = verdict(job("FAILED", 0, 15), slurm_end("PREEMPTION"))
    assert (found.code, found.certainty) == ("preempted", PROVEN)


def test_slurm_dropped_it_as_its_dependency_failed() -> None:
    found = verdict(job("CANCELLED", reason="DependencyNeverSatisfied", ran_s=0))
    assert (found.code, found.certainty) == ("cancelled", PROVEN)
    assert "its dependency failed" in found.sentence
    # Somebody was quicker than Slurm.
    found = verdict(job("CANCELLED by 1000", reason="DependencyNeverSatisfied", ran_s=0))
    assert found.sentence == "was cancelled by uid 1000"
