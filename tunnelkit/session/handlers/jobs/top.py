"""`tk top` through a session: one JSON object a line, by its agents or by steps of the job."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.handlers.jobs.why import is_own, scheduler_known, sources_of
from tunnelkit.session.runtime.control_calls import TopStream
from tunnelkit.session.session import Session
from tunnelkit.session.top.job_top import JobTop
from tunnelkit.session.top.probe_stream import (
    OpenProbe,
    ProbeStream,
    by_steps,
    open_by_agent,
    probe_argv,
)
from tunnelkit.session.top.shared import SharedTops
from tunnelkit.session.why.diagnose import newest_job
from tunnelkit.session.why.running import no_way_in


async def show_top(
    session: Session, shared: SharedTops, channel: Channel, stream: TopStream
) -> None:
    """Send frames until the job ends, or the command has left."""
    sending = asyncio.create_task(_send(session, shared, channel, stream))
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


async def _send(session: Session, shared: SharedTops, channel: Channel, stream: TopStream) -> None:
    await scheduler_known(session)
    sources = sources_of(session)
    own = None if session.cluster.job is None else session.cluster.job.job_id
    job_id = stream.job or own or await newest_job(sources)
    start = _way_in(session, sources.python)
    nodes = session.agents.nodes if job_id == own else ()

    def make() -> JobTop:
        return JobTop(sources, start, shared.history(job_id))

    async with aclosing(shared.frames(job_id, nodes, make)) as frames:
        async for frame in frames:
            # Waits for a slow terminal; the frames between are left out.
            await channel.write(json.dumps(frame).encode() + b"\n")


def _way_in(session: Session, python: str) -> OpenProbe:
    """Return how probes are started: by the agents in the session's own job, else by steps."""
    job = session.cluster.job
    by_step = None if job is None else by_steps(job.scheduler, session.link, python)

    async def start(job_id: str, node: str) -> ProbeStream:
        if is_own(session, job_id):
            argv = probe_argv(python, session.cluster.allocated.step_id or job_id)
            return await open_by_agent(await session.agents.on(node), argv)
        if by_step is None:
            raise no_way_in(node)
        return await by_step(job_id, node)

    return start
