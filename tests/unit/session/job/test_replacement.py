"""The node that comes in the place of one that a job has lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import cast

import pytest

from tunnelkit.errors import AllocationError
from tunnelkit.model import JobState, JobStatus, LostNode
from tunnelkit.session.allocation.agent_setup import AgentSetup
from tunnelkit.session.allocation.allocated import AllocatedJob
from tunnelkit.session.job.job import JobHandle
from tunnelkit.session.job.replacement import replacement_in, wait_replacement
from tunnelkit.session.runtime.event_log import unrecorded

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


def job_on(status: JobStatus) -> AllocatedJob:
    setup, job = cast(AgentSetup, None), cast(JobHandle, SimpleNamespace(foreign=True))
    return AllocatedJob(setup, job, status, unrecorded)


def test_one_that_a_rollout_has_started_before_the_loss_is_in_its_place() -> None:
    """As after an earlier loss, when each look at the job takes the nodes that it has."""
    first = LostNode("d-x", "1", "it was deleted")
    allocated = job_on(runs(("d-a", "2"), lost=(first,)))
    assert allocated.lost_in(runs(("d-a", "2"), lost=(first,))) is None
    both = runs(("d-a", "2"), ("d-b", "3"), lost=(first,))
    allocated.now_has(both)
    assert allocated.nodes == ("d-a", "d-b")
    gone = LostNode("d-a", "2", "it is being deleted")
    after = runs(("d-b", "3"), lost=(first, gone))
    assert allocated.lost_in(after) == gone
    allocated.now_has(after)
    assert allocated.nodes == ("d-a", "d-b"), "what is lost is not left out unnoticed"
    assert replacement_in(after, gone, allocated.had) == "d-b"


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
