"""One reading of a job's log, from its place to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import JobState
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.scheduler.poller import Poller
from tunnelkit.session.logs.cluster import LogCluster
from tunnelkit.session.logs.place import LogPlaceInfo, WantedLog, find_log
from tunnelkit.session.logs.reader import LogEvent, LogPart, LogReader


@dataclass(frozen=True)
class LogRequest:
    """One reading of a job's log.

    follow: until the job has ended. place_only: only where it is. lines, last_bytes: see `LogPart`.
    """

    wanted: WantedLog
    follow: bool = False
    place_only: bool = False
    lines: int | None = None
    last_bytes: int | None = None


async def read_log(
    cluster: LogCluster, request: LogRequest
) -> AsyncGenerator[LogPlaceInfo | LogEvent]:
    """Yield the log's place, then its content and remarks. Raises TunnelkitError."""
    place = await find_log(cluster, request.wanted)
    yield place
    if request.place_only:
        return
    part = LogPart(place["path"], place["job_id"], request.lines, request.last_bytes)
    if not request.follow:
        async with aclosing(LogReader(cluster, part).events()) as events:
            async for event in events:
                yield event
        return
    async with _end_watch(cluster, place) as watch:
        reader = LogReader(cluster, part, watch.ended, watch.poller.poke)
        async with aclosing(reader.events()) as events:
            async for event in events:
                yield event


@dataclass(frozen=True)
class _EndWatch:
    """ended: set when the job has ended. poller: asks the scheduler, every 30 s at most."""

    ended: asyncio.Event
    poller: Poller


@asynccontextmanager
async def _end_watch(cluster: LogCluster, place: LogPlaceInfo) -> AsyncIterator[_EndWatch]:
    """Watch for the job's end."""
    watch = _EndWatch(asyncio.Event(), Poller(cluster.run, cluster.scheduler, confirm_end=_gone))
    if place["state"] == JobState.ENDED.value:
        watch.ended.set()
    task = asyncio.create_task(_until_ended(watch, place["job_id"]))
    try:
        yield watch
    finally:
        await cancel_all(task)


async def _gone(job_id: str) -> bool:
    """Take a job for ended that the scheduler twice did not know."""
    return True


async def _until_ended(watch: _EndWatch, job_id: str) -> None:
    try:
        async with aclosing(watch.poller.watch(job_id)) as states:
            async for status in states:
                if status.state is JobState.ENDED:
                    break
    except TunnelkitError:
        return  # the user ends it
    watch.ended.set()
