"""Lists of the session's jobs that came with another answer: with detection's, which counts while
it is new, and with that of the submission."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tunnelkit.errors import AllocationError
from tunnelkit.model import Completed, JobState, ResourceRequest
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle, NoWatcher, Run

NAME = "tk-app"


def answer(job_id: str) -> Completed:
    row = f"{job_id}|RUNNING|None|node1|node1|N/A|N/A|1:00|{job_id}|cpu|{NAME}\n"
    return Completed(0, row.encode(), b"")


def handle(
    tmp_path: Path,
    run: Run,
    *,
    jobs_dir: str | None,
    listed: tuple[Completed, float] | None = None,
) -> JobHandle:
    return JobHandle(
        Slurm(),
        run,
        job_name=NAME,
        jobs_dir=jobs_dir,
        status_file=None,
        cancelled=CancelledJobs(tmp_path / "cancelled"),
        listed=listed,
    )


@pytest.mark.parametrize(("age_s", "found", "asked"), [(1.0, "1", 0), (60.0, "2", 1)])
async def test_an_old_answer_is_asked_for_again(
    tmp_path: Path, age_s: float, found: str, asked: int
) -> None:
    commands: list[Command] = []

    async def run(command: Command) -> Completed:
        commands.append(command)
        return answer("2")

    listed = (answer("1"), time.monotonic() - age_s)
    job = handle(tmp_path, run, jobs_dir=None, listed=listed)
    first = await job.find()
    assert first is not None and first.job_id == found
    assert len(commands) == asked
    # It is taken once.
    second = await job.find()
    assert second is not None and second.job_id == "2"


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        (answer("7").stdout, 0),
        (answer("8").stdout, 1),
        (b"", 1),
        (b"\xff|no row", 1),
    ],
    ids=["runs", "another", "nothing", "not-a-list"],
)
async def test_a_job_that_runs_at_its_submission_is_not_asked_for(
    tmp_path: Path, listed: bytes, asked: int
) -> None:
    queries: list[Command] = []

    async def run(command: Command) -> Completed:
        if "tk-submission" in command.argv[2]:
            said = b"tk-submission answered x\n0\nSubmitted\n7\n"
            return Completed(0, said + (b"\ntk-look x\n" + listed if listed else b""), b"")
        queries.append(command)
        return answer("7")

    job = handle(tmp_path, run, jobs_dir="~")
    assert await job.submit(ResourceRequest(), body="true") == "7"
    status = await job.wait_running(NoWatcher())
    assert (status.job_id, status.state, status.nodes) == ("7", JobState.RUNNING, ("node1",))
    assert len(queries) == asked


async def test_a_job_that_ended_at_once_is_asked_for(tmp_path: Path) -> None:
    """The list has only what is unfinished; how it ended is another question."""

    async def run(command: Command) -> Completed:
        ended = answer("7").stdout.replace(b"RUNNING", b"FAILED")
        if "tk-submission" in command.argv[2]:
            return Completed(0, b"tk-submission answered x\n0\n7\n\ntk-look x\n" + ended, b"")
        return Completed(0, ended, b"") if "squeue" in command.argv else Completed(0, b"", b"")

    job = handle(tmp_path, run, jobs_dir="~")
    await job.submit(ResourceRequest(), body="true")
    with pytest.raises(AllocationError, match="ended before"):
        await job.wait_running(NoWatcher())
