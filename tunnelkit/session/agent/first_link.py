"""The race for a client's first link: by a way that is soon there, or by the one that is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tunnelkit.link.base import ByteStream
from tunnelkit.mux.tasks import cancel_all

#: The early way has so long once the better one is known not to work.
_ALONE_S = 5.0
#: Limit for a move's hello: until its end no link carries anything, and none is reported lost.
MOVE_S = 5.0
Dial = Callable[[], Awaitable[ByteStream]]
#: The opening of a stream; None: that way does not work.
Opening = asyncio.Future[ByteStream | None]


@dataclass(frozen=True)
class FirstWays:
    """Two ways to the first link, begun at once: the one that leads to the agent first carries it.

    early: opens a stream that is soon there. entered: called once it has led to the agent. better:
    opens a stream that leads to the agent, on the route that is kept; the wire moves to it. None
    if that way does not work: the link stays where it is. It is asked again if the early way works
    after that. An error ends the link."""

    early: Dial
    entered: Callable[[], None]
    better: Callable[[], Awaitable[ByteStream | None]]


async def race(
    ways: FirstWays, connect: Callable[[Dial], Awaitable[None]]
) -> tuple[Opening | None, ByteStream | None]:
    """Let `connect` attach a link by the early way, unless the better one is there before.

    Returns the opening of the better way, to move to, if the early one was attached; else a stream
    by the better way, or None if that does not work. Raises as `ways.better`."""
    opened = False

    async def early_dial() -> ByteStream:
        nonlocal opened
        stream = await ways.early()
        opened = True
        return stream

    async def enter() -> ByteStream | None:
        await connect(early_dial)
        return None

    better: Opening = asyncio.ensure_future(ways.better())
    early: Opening = asyncio.ensure_future(enter())
    try:
        await asyncio.wait({early, better}, return_when=asyncio.FIRST_COMPLETED)
        if better.done() and (better.exception() or better.result()):
            # One hello at a time, or the agent follows the wrong one: this may be under way.
            await asyncio.wait({early}, timeout=MOVE_S if opened else 0.0)
            await cancel_all(early)
        elif better.done():
            # The other routes are next: a step that says nothing may not hold them up for long.
            await asyncio.wait({early}, timeout=_ALONE_S)
            await cancel_all(early)
        await asyncio.wait({early})
        if not early.cancelled() and early.exception() is None:
            ways.entered()
            if better.done() and better.result() is None:
                better = asyncio.ensure_future(ways.better())  # it may have come too early
            return better, None
        return None, await better
    except BaseException:
        await cancel_all(early)
        await discard(better)
        raise


async def discard(opening: Opening) -> None:
    """Cancel the opening of a stream, and close the stream if it is there."""
    await cancel_all(opening)
    if not opening.cancelled() and opening.exception() is None:
        stream = opening.result()
        if stream is not None:
            await stream.close()
