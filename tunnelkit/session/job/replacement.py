"""The wait for a node that comes in the place of one that a job has lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace

from tunnelkit.errors import AllocationError
from tunnelkit.model import JobState, JobStatus, LostNode
from tunnelkit.session.job.job import JobHandle, PendingWatcher, in_words

#: Limit of the wait until there is one in its place; then it may wait for its start without limit.
COMES_S = 300.0


async def wait_replacement(
    job: JobHandle,
    gone: LostNode,
    had: Mapping[str, str],
    pending: PendingWatcher,
    *,
    comes_s: float = COMES_S,
) -> tuple[JobStatus, str]:
    """Return the job's status once another node runs in the place of `gone`, with its name.

    had: the instances that the session had at first, by name. pending: called with what it waits
    for.
    Raises AllocationError if the job ends, or nothing comes."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(comes_s) as limit, aclosing(job.watch(hurried=True)) as states:
            async for status in states:
                node = replacement_in(status, gone, had)
                if node is not None:
                    return status, node
                if status.state is JobState.ENDED and not status.ending:
                    raise _nothing_came(job, gone, in_words(status))
                if status.state is JobState.UNKNOWN:
                    continue
                # Something is there that waits for its start: that may take as long as a queue.
                waits = status.explanation is not None
                if waits:
                    limit.reschedule(None)
                elif limit.when() is None:
                    limit.reschedule(loop.time() + comes_s)
                reason = status.reason or "there is no other in its place yet"
                pending.is_pending(replace(status, state=JobState.PENDING, reason=reason))
    except TimeoutError:
        raise _nothing_came(job, gone, f"nothing within {comes_s:.0f} s") from None
    raise _nothing_came(job, gone, "it is no longer known")


def replacement_in(status: JobStatus, gone: LostNode, had: Mapping[str, str]) -> str | None:
    """Return the node that runs in the place of `gone`; None if there is none yet.

    One of a name that the session had at first is in that one's place."""
    if status.state is not JobState.RUNNING:
        return None
    lost = {one.instance for one in status.lost}
    new = [
        node
        for node, instance in zip(status.nodes, status.instances, strict=True)
        if instance not in lost and instance != had.get(node)
    ]
    if gone.name in new:
        return gone.name
    return next((node for node in new if node not in had), None)


def _nothing_came(job: JobHandle, gone: LostNode, why: str) -> AllocationError:
    return AllocationError(
        f"what ran on {gone.name} is gone, and no other came in its place",
        cause=f"{gone.why}; {job.job_id}: {why}",
        hint="see what its owner does: kubectl describe; then: tk up",
    )
