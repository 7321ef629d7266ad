"""Lost connections of a link: the first loss is noticed, and its work ends with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from tunnelkit.errors import ConnectionFailed
from tunnelkit.model import Hop

_NOTICE_S = 0.5


async def first_loss(
    changed: asyncio.Event, waits: Callable[[], Sequence[Coroutine[object, object, str]]]
) -> str:
    """The reason of the first of `waits()` that ends; the login's is the first of them.

    `waits` is called again each time `changed` is set.
    """
    while True:
        changed.clear()
        change = asyncio.create_task(changed.wait())
        lost = [asyncio.create_task(wait) for wait in waits()]
        try:
            await asyncio.wait({change, *lost}, return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in lost):
                # What rides on the login's connection may notice its end first.
                await asyncio.wait({lost[0]}, timeout=_NOTICE_S)
            for task in lost:
                if task.done():
                    return task.result()
        finally:
            for pending in (change, *lost):
                pending.cancel()
            await asyncio.gather(change, *lost, return_exceptions=True)


async def first_end(*waits: Coroutine[object, object, str]) -> str:
    """The reason of the first that ends; no other goes on."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def lost(host: str, why: str) -> ConnectionFailed:
    """The error of work that its connection took along."""
    return ConnectionFailed(
        f"the connection to {host} is lost",
        cause=why,
        transient=True,
        hint="tk reconnects by itself; `tk status` tells how it stands",
    )


def not_connected(login: Hop) -> ConnectionFailed:
    """The error of work that finds no connection."""
    return ConnectionFailed(
        f"not connected to {login}",
        hint="wait for the reconnect, or `tk up`",
        transient=True,
    )
