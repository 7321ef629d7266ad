"""A worker or a rank that was lost long before the end, and began again, did not end the job."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.ended.test_watchdog import TABLE as ABORTED
from tests.unit.diagnosis.ended_cases import job, verdict

HEAD = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
"""
KEY = f"{HEAD}KeyError: 'label'\n"
NAN = "ERROR: loss is nan\n"
KILLED = "RuntimeError: DataLoader worker (pid 44) is killed by signal: Killed.\n"
BUS = (
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
    "shared memory (shm).\n"
)
TIMED_OUT = (
    "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600029 milliseconds before timing out.\n"
)
GONE = f"{HEAD}ConnectionResetError: [Errno 104] Connection reset by peer\n"
TABLE = ABORTED.replace("exitcode  : -6", "exitcode  : -7")
STEPS = "step\n" * 1000


@pytest.mark.parametrize(
    ("text", "end", "code", "wanted"),
    [
        (f"WARNING: restarts: {KILLED}{STEPS}", KEY, 1, "exception"),
        (f"WARNING: restarts: {KILLED}{STEPS}", NAN, 3, "exit-unknown"),
        (BUS + STEPS, KEY, 1, "exception"),
        (TIMED_OUT.format(5) + STEPS, KEY, 1, "exception"),
        (TIMED_OUT.format(5) + STEPS, NAN, 3, "exit-unknown"),
        (HEAD + KILLED + STEPS, NAN, 3, "exit-unknown"),
        # At the end they did.
        (STEPS, HEAD + KILLED, 1, "worker-killed"),
        (STEPS, KILLED, 1, "worker-killed"),
        (STEPS, BUS + GONE, 1, "shm-full"),
        (STEPS, BUS + HEAD + KILLED.replace("Killed.", "Bus error. "), 1, "shm-full"),
        (STEPS, f"{BUS}{HEAD}RuntimeError: DataLoader worker (pid(s) 4) exited unexpectedly\n", 1,
         "shm-full"),
        (BUS, TABLE, 1, "shm-full"),
        (BUS + STEPS, TABLE, 1, "bus"),
        (KEY + STEPS, KILLED, 1, "worker-killed"),
        (STEPS, TIMED_OUT.format(5) + "frame #0\n" * 60, 1, "nccl-timeout"),
    ],
)  # fmt: skip
def test_what_was_lost_long_before_is_no_cause(text: str, end: str, code: int, wanted: str) -> None:
    assert verdict(job("FAILED", code), text + end).code == wanted


def test_the_last_collective_is_named() -> None:
    text = TIMED_OUT.format(5) + STEPS + TIMED_OUT.format(77) + TIMED_OUT.format(78)
    assert "number 77" in verdict(job("FAILED", 1), text).sentence
