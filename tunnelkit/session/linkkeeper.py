"""Keeps the connection to the login host: whenever it is lost, it is brought back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import Link

_MAX_BACKOFF_S = 15.0


class LinkKeeper:
    """The only place that (re)connects a link, so there is never more than one attempt.

    `open`, then `run` for as long as the link is wanted; who closes the link is its owner.
    lost: told why, at each loss and each attempt that failed. say: for people.
    """

    def __init__(
        self, link: Link, *, lost: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        self._link = link
        self._lost = lost
        self._say = say
        self._up = asyncio.Event()
        self._retry = asyncio.Event()

    async def open(self) -> None:
        """Connect for the first time. Raises as `Link.open`."""
        await self._link.open()
        self._up.set()

    async def wait_up(self) -> None:
        """Return once the link is there."""
        await self._up.wait()

    def retry(self) -> None:
        """A person is there: try once more, at once, if an attempt is due or was given up."""
        self._retry.set()

    async def run(self) -> None:
        """Bring the connection (and its forwards) back whenever it is lost; never returns."""
        while True:
            why = await self._link.wait_lost()
            if not await self._link.is_alive():
                self._up.clear()
                self._lost(why)
            await self._reopen()
            self._up.set()

    async def _reopen(self) -> None:
        attempt = 0
        while True:
            self._retry.clear()
            try:
                await self._link.open()
                return
            except TunnelkitError as error:
                self._lost(error.one_line())
                if not error.transient:
                    # Asking again by itself could lock the account: a person must come.
                    self._say(f"{error.one_line()}; `tk up` tries again")
                    await self._retry.wait()
                    continue
            attempt += 1
            delay_s = min(_MAX_BACKOFF_S, 0.5 * 2**attempt)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s * random.uniform(0.5, 1.0)):  # noqa: S311
                    await self._retry.wait()
