"""A job that waits is cancelled by tk only if it is proven that it never starts."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.errors import AllocationError
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command
from tunnelkit.scheduler.slurm.adapter import Slurm
from tunnelkit.session.agents import SessionAgents
from tunnelkit.session.job import job
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.job import JobHandle

NAME = "tk-p-12345678"


class Login:
    """squeue gives a reason a time, and then the job runs."""

    def __init__(self, *reasons: str, partition: str = "cpu") -> None:
        self.reasons = list(reasons)
        self.partition = partition
        self.cancelled: list[str] = []

    async def run(self, command: Command) -> Completed:
        if "scancel" in command.argv:
            self.cancelled.append(command.argv[-1])
            return Completed(0, b"", b"")
        state, reason, node = "RUNNING", "None", "n1"
        if self.reasons:
            state, reason, node = "PENDING", self.reasons[0], ""
            if "-j" in command.argv:
                del self.reasons[0]
        row = f"7|{state}|{reason}|{node}|{node}|N/A|N/A|1:00|7|{self.partition}|{NAME}\n"
        return Completed(0, row.encode(), b"")


class Watcher:
    """Knows a proof, or none."""

    def __init__(self, proof: str | None = None) -> None:
        self.proof = proof
        self.asked = 0
        self.said: list[str | None] = []

    def is_pending(self, status: JobStatus) -> None:
        self.said.append(status.reason)

    async def why_never(self, status: JobStatus) -> str | None:
        self.asked += 1
        return self.proof


def handle(login: Login, directory: Path) -> JobHandle:
    made = JobHandle(
        Slurm(),
        login.run,
        job_name=NAME,
        jobs_dir=None,
        status_file=None,
        cancelled=CancelledJobs(directory / "cancelled"),
    )
    made.job_id, made.submitted = "7", True
    return made


async def test_a_reason_of_one_of_its_partitions_does_not_end_the_wait(tmp_path: Path) -> None:
    login = Login("Priority", "PartitionTimeLimit", "BadConstraints", partition="short,long")
    watcher = Watcher()
    status = await handle(login, tmp_path).wait_running(watcher)
    assert status.state is JobState.RUNNING and login.cancelled == []
    assert watcher.said == ["Priority", "PartitionTimeLimit", "BadConstraints"]
    assert watcher.asked == 1, "a question costs commands on the login host: once a minute"


async def test_it_is_asked_again_while_the_doubt_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_DOUBT_S", 0.0)
    watcher = Watcher()
    await handle(Login("BadConstraints", "BadConstraints"), tmp_path).wait_running(watcher)
    assert watcher.asked == 2


@pytest.mark.parametrize(
    ("reason", "proof", "says"),
    [
        ("BadConstraints", "no node has 99 CPUs", "no node has 99 CPUs"),
        ("PartitionTimeLimit", None, "over the partition's limit"),
    ],
)
async def test_a_job_that_never_starts_is_cancelled(
    tmp_path: Path, reason: str, proof: str | None, says: str
) -> None:
    login = Login(reason)
    with pytest.raises(AllocationError, match="can never start") as caught:
        await handle(login, tmp_path).wait_running(Watcher(proof))
    assert says in str(caught.value.cause) and login.cancelled == ["7"]


@pytest.mark.parametrize(("ago_s", "young"), [(None, True), (5, True), (3600, False)])
def test_a_job_that_has_waited_is_not_young(ago_s: float | None, young: bool) -> None:
    """A failed `tk up` cancels a young one only, also where the wait has just ended."""
    agents = object.__new__(SessionAgents)
    at = None if ago_s is None else time.monotonic() - ago_s
    cluster: Any = SimpleNamespace(job=SimpleNamespace(submitted_at=at))
    agents.cluster = cluster
    assert agents.is_young is young
