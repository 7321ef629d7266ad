"""The verdict in one line as a session ends: only if it says more, and never late."""

from __future__ import annotations

import asyncio

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.job.outcome import describe_end
from tunnelkit.session.why import end_line as module
from tunnelkit.session.why.end_line import end_line

FAILED = JobStatus("7", JobState.ENDED, "FAILED", explanation="the job's script failed")
LOG = """Traceback (most recent call last):
  File "/h/t.py", line 3, in f
    x
KeyError: 'a\x1b[2J'"""


def record(state: str, code: str) -> str:
    return (
        f"JobId=7 JobName=x JobState={state} Reason=None ExitCode={code} StartTime=1795634660 "
        "EndTime=1795634700 StdErr=/h/7.log StdOut=/h/7.log"
    )


def answering(state: str, code: str, log: str):
    async def run(command: Command) -> Completed:
        mark = command.argv[4]
        sections = {"now": "1795634701", "job": record(state, code),
                    "log-out": f"/h/7.log\ntk-file 9 1795634700\n{log}"}  # fmt: skip
        parts = [f"\n{mark} {key}\n{text}\n{mark}-code 0\n" for key, text in sections.items()]
        return Completed(0, "".join(parts).encode(), b"")

    return run


async def test_it_says_more_than_the_state() -> None:
    run = answering("FAILED", "1:0", LOG)
    line = await end_line(Slurm(), run, FAILED, "")
    assert line == r"failed: KeyError: 'a\x1b[2J' at t.py:3 in f"
    text = await describe_end(Slurm(), run, FAILED, line)
    assert text == f"job 7: FAILED, {line}; `tk why 7` says more"


@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"])
async def test_todays_words_where_the_state_says_it(state: str) -> None:
    status = JobStatus("7", JobState.ENDED, state)
    assert await end_line(Slurm(), answering(state, "0:0", ""), status, "") is None


async def test_it_is_not_asked_who_cancelled() -> None:
    async def run(command: Command) -> Completed:
        raise AssertionError("asked")

    assert await end_line(Slurm(), run, JobStatus("7", JobState.ENDED, "CANCELLED"), "") is None


async def test_no_answer_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(command: Command) -> Completed:
        raise ConnectionFailed("the link is gone")

    async def silent(command: Command) -> Completed:
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def nonsense(command: Command) -> Completed:
        return Completed(1, b"\xff\x00 what", b"")

    monkeypatch.setattr(module, "LIMIT_S", 0.05)
    for run in (lost, silent, nonsense):
        assert await end_line(Slurm(), run, FAILED, "") is None
