"""The reports of a session while something happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tunnelkit.errors import TimeoutExpired
from tunnelkit.session.runtime import control_client
from tunnelkit.session.runtime.control_calls import Follow
from tunnelkit.session.runtime.paths import SessionPaths


class Watch:
    """The states that a session went through since `watching` began."""

    def __init__(self) -> None:
        self._states: asyncio.Queue[str] = asyncio.Queue()

    async def take(self, params: dict[str, object]) -> None:
        """The session's notice of a new state."""
        self._states.put_nowait(str(params["state"]))

    async def until(self, state: str, timeout_s: float) -> None:
        """Return once the session said that it is in `state`. Raises TimeoutExpired."""
        seen: list[str] = []
        try:
            async with asyncio.timeout(timeout_s):
                while state not in seen:
                    seen.append(await self._states.get())
        except TimeoutError:
            raise TimeoutExpired(
                f"the session did not become {state} within {timeout_s:.0f} s",
                cause=f"it was {', then '.join(seen)}" if seen else "its state did not change",
            ) from None


@asynccontextmanager
async def watching(paths: SessionPaths) -> AsyncIterator[Watch]:
    """Follow a session's states. Raises NoSessionError if it is not there."""
    watch = Watch()
    async with control_client.connect(paths, notices={"state": watch.take}) as session:
        await session.call(Follow())
        yield watch
