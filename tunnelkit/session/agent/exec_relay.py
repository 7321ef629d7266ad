"""Byte relay between a channel of the control socket and one of the agent (terminals)."""

from __future__ import annotations

import asyncio

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all


async def pump(source: Channel, sink: Channel) -> None:
    """Copy bytes from `source` to `sink`, and then the end of the stream."""
    while data := await source.read():
        await sink.write(data)
    sink.write_eof()


async def join(near: Channel, far: Channel) -> None:
    """Copy bytes both ways until `far` (the agent's) closes; close `near` with its detail.

    If `near` closes first (the terminal has hung up), `far` is closed too.
    """
    down = asyncio.create_task(pump(far, near))
    up = asyncio.create_task(pump(near, far))
    far_over = asyncio.create_task(far.closed())
    near_over = asyncio.create_task(near.closed())
    try:
        await asyncio.wait([far_over, near_over], return_when=asyncio.FIRST_COMPLETED)
        if far_over.done():
            await down
            near.close(far_over.result() or {"error": "the connection to the node ended"})
        else:
            far.close()
    finally:
        await cancel_all(down, up, far_over, near_over)
