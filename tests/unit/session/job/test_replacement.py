"""The node that comes in the place of one that a job has lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import cast

import pytest

from tunnelkit.errors import AllocationError
from tunnelkit.model import JobState, JobStatus, LostNode
from tunnelkit.session.job.job import JobHandle
from tunnelkit.session.job.replacement import replacement_in, wait_replacement

GONE = LostNode("w-0", "a", "it was deleted")
HAD = {"w-0": "a", "w-1": "b"}


def runs(*nodes: tuple[str, str], lost: tuple[LostNode, ...] = (GONE,)) -> JobStatus:
    names, instances = zip(*nodes, strict=True)
    return JobStatus("sts/w", JobState.RUNNING, "", nodes=names, instances=instances, lost=lost)


def pending(why: str | None = None) -> JobStatus:
    return JobStatus("sts/w", JobState.PENDING, "", "none yet", why, lost=(GONE,))


@pytest.mark.parametrize(
    ("now", "node"),
    [
        (runs(("w-1", "b")), None),
        (runs(("w-0", "c"), ("w-1", "b")), "w-0"),
        # The other one was replaced, too: it is another rank.
        (runs(("w-1", "d")), None),
        (runs(("w-1", "d"), ("w-x", "e")), "w-x"),
        (runs(("w-0", "a")), None),
        (runs(("w-0", "c"), lost=(GONE, LostNode("w-0", "c", "again"))), None),
        (pending(), None),
    ],
)
def test_what_is_in_its_place(now: JobStatus, node: str | None) -> None:
    assert replacement_in(now, GONE, HAD) == node


class Job:
    """A job whose states are told, and then nothing more comes."""

    job_id = "sts/w"

    def __init__(self, *states: JobStatus) -> None:
        self._states = states
        self.shown: list[str] = []

    async def watch(self, *, hurried: bool) -> AsyncGenerator[JobStatus]:
        for status in self._states:
            yield status
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    def is_pending(self, status: JobStatus) -> None:
        self.shown.append(status.explanation or status.reason or "")

    async def why_never(self, status: JobStatus) -> str | None:
        return None

    async def waited(self, comes_s: float) -> str:
        job = cast(JobHandle, SimpleNamespace(watch=self.watch, job_id=self.job_id))
        return (await wait_replacement(job, GONE, HAD, self, comes_s=comes_s))[1]


async def test_one_that_waits_for_its_start_is_waited_for() -> None:
    job = Job(pending(), pending("no node for it"), runs(("w-0", "c")))
    assert await job.waited(60.0) == "w-0"
    assert job.shown == ["none yet", "no node for it"]


async def test_nothing_comes() -> None:
    with pytest.raises(AllocationError, match="no other came in its place") as caught:
        await Job(pending("no node for it"), pending()).waited(0.01)
    assert "it was deleted; sts/w: nothing within" in (caught.value.cause or "")
    ended = JobStatus("sts/w", JobState.ENDED, "Succeeded", explanation="exit code 0")
    with pytest.raises(AllocationError, match="no other") as caught:
        await Job(pending(), ended).waited(60.0)
    assert "Succeeded, exit code 0" in (caught.value.cause or "")
