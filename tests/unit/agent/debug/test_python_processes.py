"""The programs that a job runs by itself: its own user's, with its id."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tunnelkit.agent.debug.python_processes import JOBS_OWN, look

_CODE = "import sys; print(1, flush=True); sys.stdin.read()"


def program(job: str, user: int | None = None) -> Iterator[int]:
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job, "RANK": "3", "WORLD_SIZE": "4"}
    with subprocess.Popen(
        ["/usr/bin/python3" if user else sys.executable, "-c", _CODE],
        env=env,
        user=user,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as started:
        assert started.stdin is not None and started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.stdin.close()


@pytest.fixture(autouse=True)
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")


def test_a_program_of_the_job_is_seen_and_that_of_another_job_is_not() -> None:
    for pid in program("4711"):
        found = look(pid, ())
        assert found is not None and (found["rank"], found["run"]) == (3, JOBS_OWN)
    for pid in program("4712"):
        assert look(pid, ()) is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads other users' environments")
def test_another_user_s_program_is_none_of_the_job_s() -> None:
    for pid in program("4711", user=65534):
        assert look(pid, ()) is None
