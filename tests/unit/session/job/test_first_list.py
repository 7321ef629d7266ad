"""The answer about the session's jobs that came with the detection counts while it is new."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle

NAME = "tk-app"


def answer(job_id: str) -> Completed:
    row = f"{job_id}|RUNNING|None|node1|node1|N/A|N/A|1:00|{job_id}|cpu|{NAME}\n"
    return Completed(0, row.encode(), b"")


@pytest.mark.parametrize(("age_s", "found", "asked"), [(1.0, "1", 0), (60.0, "2", 1)])
async def test_an_old_answer_is_asked_for_again(
    tmp_path: Path, age_s: float, found: str, asked: int
) -> None:
    commands: list[Command] = []

    async def run(command: Command) -> Completed:
        commands.append(command)
        return answer("2")

    job = JobHandle(
        Slurm(),
        run,
        job_name=NAME,
        jobs_dir=None,
        status_file=None,
        cancelled=CancelledJobs(tmp_path / "cancelled"),
        listed=(answer("1"), time.monotonic() - age_s),
    )
    first = await job.find()
    assert first is not None and first.job_id == found
    assert len(commands) == asked
    # It is taken once.
    second = await job.find()
    assert second is not None and second.job_id == "2"
