"""The meaning of each comment of PBS's on a job, and of each exit code."""

from __future__ import annotations

import pytest

from tunnelkit.model import JobState, JobStatus
from tunnelkit.scheduler.base import PendingCause
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.pbs.states import ending, judge


@pytest.mark.parametrize(
    ("comment", "verdict"),
    [
        ("", PendingCause.WAIT),
        ("Not Running: Insufficient amount of resource: host ", PendingCause.WAIT),
        ("Not Running: Insufficient amount of resource: ngpus", PendingCause.WAIT),
        ("Not Running: No available resources on nodes", PendingCause.WAIT),
        ("Not Running: Job would conflict with reservation or top job", PendingCause.WAIT),
        ("Not Running: Draining system to allow 3.server to run", PendingCause.WAIT),
        ("something new", PendingCause.WAIT),
        ("Not Running: User has reached queue gpu running job limit.", PendingCause.QUOTA),
        ("Not Running: Queue gpu per-user limit reached on resource ngpus", PendingCause.QUOTA),
        ("Not Running: Insufficient amount of server resource: lic (R: 1 A: 0 T: 9)",
         PendingCause.QUOTA),
        ("Not Running: Queue not started.", PendingCause.HELD),
        ("Not Running: Node is in an ineligible state: offline", PendingCause.HELD),
        ("Hold_Types = s", PendingCause.HELD),
        ("Hold_Types = u; Job held by alice", PendingCause.HELD),
        (
            "Can Never Run: Insufficient amount of resource: ngpus (R: 9 A: 2 T: 2)",
            PendingCause.FIX,
        ),
        ("Can Never Run: Not enough total nodes available", PendingCause.FIX),
    ],
)  # fmt: skip
def test_verdicts(comment: str, verdict: PendingCause) -> None:
    assert judge(comment)[0] is verdict
    assert judge(comment)[1]
    assert PBS().verdict(JobStatus("1", JobState.PENDING, "Q", reason=comment)) is verdict


@pytest.mark.parametrize(
    ("code", "torque", "words"),
    [
        ("-29", False, "time limit"), ("-27", False, "more memory"), ("271", False, "qdel"),
        ("0", False, "by itself"), ("3", False, "exit code 3"), ("", False, "over"),
        ("-999", False, "-999"), ("-11", True, "time limit"), ("-10", True, "more memory"),
        ("137", False, "KILL"), ("143", True, "TERM"),
    ],
)  # fmt: skip
def test_endings(code: str, torque: bool, words: str) -> None:
    assert words in ending(code, "Job run at ...", torque=torque)


def test_a_named_node_may_never_have_as_many() -> None:
    words = judge("Not Running: Insufficient amount of resource: ngpus")[1]
    assert "(ngpus)" in words and "pbsnodes" in words
    assert (
        "pbsnodes"
        not in judge("Not Running: Insufficient amount of resource: ngpus (R: 2 A: 0 T: 2)")[1]
    )
