"""One reading of a job's log, from its place to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

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
    if request.follow:
        async with (
            _followed(cluster, request, place) as reader,
            aclosing(reader.events()) as events,
        ):
            async for event in events:
                yield event
        return
    async with aclosing(LogReader(cluster, _part(request, place)).events()) as events:
        async for event in events:
            yield event


def _part(request: LogRequest, place: LogPlaceInfo) -> LogPart:
    return LogPart(
        place["path"],
        place["job_id"],
        request.lines,
        request.last_bytes,
        place["name_in_directory"],
    )


@asynccontextmanager
async def _followed(
    cluster: LogCluster, request: LogRequest, place: LogPlaceInfo
) -> AsyncIterator[LogReader]:
    """Watch for the job's end, for a reader that ends with it."""
    ended = asyncio.Event()
    if place["state"] == JobState.ENDED.value:
        ended.set()
    poller = Poller(cluster.run, cluster.scheduler, confirm_end=_gone)
    reader = LogReader(cluster, _part(request, place), ended, poller.poke)

    async def look_again() -> bool:
        wanted = replace(request.wanted, job_id=request.wanted.job_id or place["job_id"])
        try:
            reader.move(_part(request, await find_log(cluster, wanted)))
        except TunnelkitError:
            return False
        return True

    task = asyncio.create_task(_until_ended(poller, place, reader, look_again))
    try:
        yield reader
    finally:
        await cancel_all(task)


async def _gone(job_id: str) -> bool:
    """Take a job for ended that the scheduler twice did not know."""
    return True


async def _until_ended(
    poller: Poller,
    place: LogPlaceInfo,
    reader: LogReader,
    look_again: Callable[[], Awaitable[bool]],
) -> None:
    """Set the reader's `ended` at the job's end. An element of an array may have its path only
    once it has started: a log that is missing then is asked for again."""
    known = place["state"]
    try:
        async with aclosing(poller.watch(place["job_id"])) as states:
            async for status in states:
                state = status.state
                begun = state in (JobState.RUNNING, JobState.ENDED) and state.value != known
                if begun and (not reader.missing or await look_again()):
                    known = state.value
                if state is JobState.ENDED:
                    break
    except TunnelkitError:
        return  # the user ends it
    if reader.ended is not None:
        reader.ended.set()
