"""The stream of a job's log to `tk logs JOB`, by the session's link."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, STDOUT, LoopRecord, event_payload
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.logs.cluster import session_log_cluster
from tunnelkit.session.logs.place import LogPlaceInfo, WantedLog
from tunnelkit.session.logs.read_log import LogRequest, read_log
from tunnelkit.session.logs.reader import LogEvent
from tunnelkit.session.runtime.control_calls import JobLogStream


async def show_log(allocation: AllocationManager, channel: Channel, stream: JobLogStream) -> None:
    """Send the log as records until it is over, or the command has left."""
    sending = asyncio.create_task(_send(allocation, channel, stream))
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


async def _send(allocation: AllocationManager, channel: Channel, stream: JobLogStream) -> None:
    job = allocation.job
    own_id = None if job is None else job.job_id

    def own_log(job_id: str) -> str | None:
        # The user may leave out the name of PBS's server.
        is_own = own_id is not None and own_id.partition(".")[0] == job_id.partition(".")[0]
        return job.log_file if job is not None and is_own else None

    request = LogRequest(
        WantedLog(stream.job or own_id, stream.err, own_log, stream.file),
        follow=stream.follow,
        place_only=stream.place_only,
        lines=stream.lines,
        last_bytes=stream.last_bytes,
    )
    number = 0
    async with aclosing(read_log(session_log_cluster(allocation), request)) as events:
        async for event in events:
            await channel.write(_record(number, event).encode())
            number += 1


def _record(number: int, event: LogPlaceInfo | LogEvent) -> LoopRecord:
    if isinstance(event, bytes):
        return LoopRecord(STDOUT, number, event)
    if isinstance(event, str):
        return LoopRecord(EVENT, number, event_payload("note", text=event))
    return LoopRecord(EVENT, number, event_payload("place", place=event))
