"""The end of a job's log, as it is shown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.pbs.torque import Torque
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle
from tunnelkit.session.job.log_tail import last_words


async def here(command: Command) -> Completed:
    done = subprocess.run(command.argv, capture_output=True, check=False, timeout=30)
    return Completed(done.returncode, done.stdout, done.stderr)


async def test_the_last_lines_count_and_the_scheduler_s_own_do_not(tmp_path: Path) -> None:
    noise = "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-11-23T07:06:52 ***"
    lines = ["far away", *(f"line {i}" for i in range(500)), "no python3", "", noise]
    (tmp_path / "12.log").write_text("\n".join(lines) + "\n")
    told = await last_words(here, str(tmp_path), "12.pbs-server", "tk-me")
    assert told == "its log ends: line 498 | line 499 | no python3"


async def test_pbs_calls_the_log_after_the_job(tmp_path: Path) -> None:
    (tmp_path / "tk-me.log").write_bytes(b"\x1b]0;title\x07bad\xff\n")
    told = await last_words(here, str(tmp_path), "7.server", "tk-me")
    assert told.startswith("its log ends: \\x1b]0;title\\x07bad") and told.isprintable()


@pytest.mark.parametrize(
    ("scheduler", "log"), [(Slurm(), "7.log"), (PBS(), "tk-me.log"), (Torque(), "tk-me.log")]
)
def test_the_job_s_log_has_the_name_that_the_submission_gave_it(
    tmp_path: Path, scheduler: Scheduler, log: str
) -> None:
    job = JobHandle(
        scheduler,
        here,
        job_name="tk-me",
        jobs_dir="/jobs",
        status_file=None,
        cancelled=CancelledJobs(tmp_path / "cancelled"),
    )
    assert job.log_file is None
    job.job_id = "7.server"
    assert job.log_file == f"/jobs/{log}"


async def test_without_a_log_it_says_where_it_looked(tmp_path: Path) -> None:
    assert await last_words(here, str(tmp_path), "3", "x") == f"it left no log in {tmp_path}"

    async def lost(_command: Command) -> Completed:
        raise ConnectionFailed("gone")

    assert await last_words(lost, str(tmp_path), "3", "x") == "its log can't be read"
