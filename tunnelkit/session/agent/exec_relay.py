"""Join a channel of the control socket with one of the agent: the terminal on the node."""

from __future__ import annotations

import asyncio

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.tasks import cancel_all


async def pump(source: Channel, sink: Channel) -> None:
    """Carry bytes one way, and the end of the stream."""
    while data := await source.read():
        await sink.write(data)
    sink.write_eof()


async def join(near: Channel, far: Channel) -> None:
    """Carry bytes both ways until `far` (the agent's) closes; its last word becomes ours.

    If `near` closes first the far side is closed too: the terminal has hung up.
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
