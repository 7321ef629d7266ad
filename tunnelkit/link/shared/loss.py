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


class WatchedConnection:
    """A connection to `host`; the task `_watch` ends with it, and has the reason."""

    host: str
    _watch: asyncio.Task[str] | None = None

    @property
    def is_up(self) -> bool:
        """True if the connection has not ended, as far as is known."""
        return self._watch is not None and not self._watch.done()

    async def prove(self) -> None:
        """See `base.Link.doubt`; by default the connection finds its own loss soon enough."""

    async def wait(self) -> str:
        """Return, with the reason, once the connection is gone."""
        if self._watch is None:
            return f"there is no connection to {self.host}"
        return await asyncio.shield(self._watch)


def lost(host: str, why: str, *, what: str = "the connection to {} is lost") -> ConnectionFailed:
    """The error of work that its connection took along."""
    return ConnectionFailed(
        what.format(host),
        cause=why,
        transient=True,
        hint="tk reconnects by itself; `tk status` shows the state",
    )


def not_connected(login: Hop) -> ConnectionFailed:
    """The error of work that finds no connection."""
    return ConnectionFailed(
        f"not connected to {login}",
        hint="wait for the reconnect, or `tk up`",
        transient=True,
    )
