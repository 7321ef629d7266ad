"""The stream of a job's log to `tk logs JOB`, by the session's link."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, STDOUT, LoopRecord, event_payload
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.logs.cluster import LogCluster
from tunnelkit.session.logs.place import LogPlaceInfo, WantedLog
from tunnelkit.session.logs.read_log import LogRequest, read_log
from tunnelkit.session.logs.reader import LogEvent
from tunnelkit.session.runtime.control_calls import JobLogStream
from tunnelkit.session.session import Session
from tunnelkit.session.why.sources import no_inspector

_AGAIN_S = 1.0


async def show_log(session: Session, channel: Channel, stream: JobLogStream) -> None:
    """Send the log as records until it is over, or the command has left."""
    sending = asyncio.create_task(_send(session, channel, stream))
    over = asyncio.create_task(channel.closed())
    try:
        await asyncio.wait([sending, over], return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            await sending
            channel.close({"code": 0})
    except TunnelkitError as error:
        channel.close({"failure": error.to_json()})
    finally:
        await cancel_all(sending, over)


async def _send(session: Session, channel: Channel, stream: JobLogStream) -> None:
    request = LogRequest(
        WantedLog(stream.job or _own_job(session), stream.err, lambda job: _own_log(session, job)),
        follow=stream.follow,
        place_only=stream.place_only,
        lines=stream.lines,
        last_bytes=stream.last_bytes,
    )
    number = 0
    async with aclosing(read_log(_cluster(session), request)) as events:
        async for event in events:
            await channel.write(_record(number, event).encode())
            number += 1


def _record(number: int, event: LogPlaceInfo | LogEvent) -> LoopRecord:
    if isinstance(event, bytes):
        return LoopRecord(STDOUT, number, event)
    if isinstance(event, str):
        return LoopRecord(EVENT, number, event_payload("note", text=event))
    return LoopRecord(EVENT, number, event_payload("place", place=event))


def _own_job(session: Session) -> str | None:
    return None if session.cluster.job is None else session.cluster.job.job_id


def _own_log(session: Session, job_id: str) -> str | None:
    job = session.cluster.job
    return job.log_file if job is not None and job.job_id == job_id else None


def _cluster(session: Session) -> LogCluster:
    """Return the session's cluster. Raises SchedulerError if it has no scheduler."""
    job, link = session.cluster.job, session.link
    inspector = None if job is None else job.scheduler.inspector()
    if job is None or inspector is None:
        raise no_inspector(link.name)

    async def open_stream(argv: Sequence[str]) -> ByteStream:
        await session.cluster.setup.wait_link()
        return await link.open_stream(argv)

    async def reopen() -> None:
        while True:
            await session.cluster.setup.wait_link()
            if await link.is_alive():
                return
            await asyncio.sleep(_AGAIN_S)

    return LogCluster(link.name, job.scheduler, inspector, session.cluster.run, open_stream, reopen)
