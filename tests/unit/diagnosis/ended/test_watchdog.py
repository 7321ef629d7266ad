"""torch's watchdog aborts a rank that waits in vain: that rank is no cause."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.ended_cases import job, verdict

TIMED_OUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=512, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
)
DIED = "terminate called after throwing an instance of 'c10::DistBackendError'\n"
TABLE = """\
Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 264, in agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-25_10:00:00
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 4243)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 4243
============================================================
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] {TIMED_OUT}{DIED}", "nccl-timeout"),
        (f"[E ProcessGroupNCCL.cpp:523] [Rank 1] {TIMED_OUT}{DIED}", "nccl-timeout"),
        ("Fatal Python error: Aborted\n" + f"[rank1]:[E x] {TIMED_OUT}{DIED}", "nccl-timeout"),
        # Another rank met the end of this one.
        (f"[rank0]:[E ProcessGroupNCCL.cpp:523] [Rank 0] {TIMED_OUT}", "abort"),
        ("python: model.c:12: check: Assertion `n > 0' failed.\n", "abort"),
    ],
)
def test_a_rank_that_the_watchdog_aborted_is_not_the_first_to_fail(text: str, code: str) -> None:
    assert verdict(job("FAILED", 1), text + TABLE).code == code


def test_it_says_at_which_collective() -> None:
    found = verdict(job("FAILED", 1), f"[rank1]:[E x] {TIMED_OUT}{DIED}{TABLE}")
    assert found.sentence == "failed: not every rank arrived at ALLREDUCE number 512"


def test_each_node_writes_a_table_of_all_its_ranks() -> None:
    more = "".join(
        f"[{at}]:\n  time      : x\n  host      : n1\n  rank      : {at} (local_rank: {at})\n"
        f"  exitcode  : -6 (pid: {at})\n  error_file: <N/A>\n  traceback : Signal 6\n"
        for at in range(8)
    )
    table = TABLE.replace("Root Cause", f"Failures:\n{more}Root Cause")
    text = f"[rank1]:[E x] {TIMED_OUT}{DIED}{table * 2}"
    assert verdict(job("FAILED", 1), text).code == "nccl-timeout"
    # Another try, long before the end.
    text = f"[rank1]:[E x] {TIMED_OUT}" + "step\n" * 300 + "loss is nan\n"
    assert verdict(job("FAILED", 3), text).code == "exit-unknown"
