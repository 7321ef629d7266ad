"""The monitor of a session's job: what it takes of each answer of the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tunnelkit.model import JobState, JobStatus
from tunnelkit.session.job.time_limit import TimeLimit
from tunnelkit.session.job_monitor import JobMonitor

SUSPENDED = "the job is suspended: its processes stand still until it is resumed"


class Rig:
    """A monitor whose scheduler gives these answers, a minute apart on the clock of the test."""

    def __init__(self, directory: Path, *answers: JobStatus) -> None:
        self.now = 0.0
        self.answers = answers
        self.said: list[str] = []
        self.lost: list[str] = []
        self.left: list[int | None] = []
        self.limit = TimeLimit(directory / "x", lambda left_s: None, clock=lambda: self.now)
        job = SimpleNamespace(look_for_twins=self._nothing, watch=self._watch)
        allocated = SimpleNamespace(lost_in=lambda status: None)
        cluster: Any = SimpleNamespace(job=job, allocated=allocated)
        self.monitor = JobMonitor(
            cluster, self.limit, self.lost.append, lambda status: None, self.said.append
        )

    async def run(self) -> None:
        await self.monitor.begin(asyncio.ensure_future)
        assert self.monitor._watching is not None
        await self.monitor._watching
        self.limit.close()

    async def _nothing(self) -> None:
        pass

    async def _watch(self) -> AsyncIterator[JobStatus]:
        for status in self.answers:
            yield status
            self.left.append(self.limit.left_s)
            self.now += 60


def runs(left_s: int | None, explanation: str | None = None) -> JobStatus:
    return JobStatus("7", JobState.RUNNING, "R", explanation=explanation, time_left_s=left_s)


async def test_the_time_goes_on_while_the_scheduler_does_not_answer(tmp_path: Path) -> None:
    """An answer that did not come repeats the time left of the last one."""
    unknown = JobStatus("7", JobState.UNKNOWN, "", time_left_s=1200)
    rig = Rig(tmp_path, runs(1200), unknown, unknown, runs(900), runs(None))
    await rig.run()
    assert rig.left == [1200, 1140, 1080, 900, None]


async def test_a_suspended_job_is_said_once_and_so_is_its_return(tmp_path: Path) -> None:
    rig = Rig(tmp_path, runs(9), runs(9, SUSPENDED), runs(9, SUSPENDED), runs(9))
    await rig.run()
    assert rig.said == [f"job 7: {SUSPENDED}", "job 7: it runs as before"]
