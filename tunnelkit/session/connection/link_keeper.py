"""Keeper of the connection to the login host: reconnects whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tunnelkit.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ConnectionThrottled,
    HostKeyError,
    MissingProgram,
    TunnelkitError,
)
from tunnelkit.link.base import Link

log = logging.getLogger("tunnelkit.session")

_FIRST_S = 1.0
_MAX_BACKOFF_S = 15.0
#: Limit for a host that throttles this client: frequent attempts would prolong the throttling.
_MAX_THROTTLED_S = 60.0
#: Errors that waiting doesn't fix. A repeated automatic authentication could lock an account.
_FOR_A_PERSON = (AuthenticationFailed, HostKeyError, ConfigError, MissingProgram)


def backoff_s(attempt: int, error: TunnelkitError) -> float:
    """Return the seconds until the next attempt, after `attempt` (0, 1, ...) failed with `error`.

    Doubled each time, and jittered: sessions that lost one host must not all reconnect at once.
    """
    limit_s = _MAX_THROTTLED_S if isinstance(error, ConnectionThrottled) else _MAX_BACKOFF_S
    return min(limit_s, _FIRST_S * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass
class LinkKeeper:
    """The only place that (re)connects a link, so there is never more than one attempt.

    Call `open`, then `run` for as long as the link is wanted. The link's owner closes it.
    lost: called with the reason, and its error if there is one, at each loss (`is_up` is still True
    then) and each failed attempt.
    stuck: called with the error when only the user can bring the link back (`retry`), with None
    when that is tried and when the link is back. A login that has ended where what runs goes on
    (see `Link.is_alive`) is no loss: only `stuck` is called.
    """

    link: Link
    lost: Callable[[str, TunnelkitError | None], None]
    stuck: Callable[[TunnelkitError | None], None]
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _retry: asyncio.Event = field(default_factory=asyncio.Event)
    #: True while the link is not as it should be, up or not.
    is_mending: bool = False

    async def open(self) -> None:
        """Connect for the first time. Raises as `Link.open`."""
        await self.link.open()
        self._up.set()

    async def wait_up(self) -> None:
        """Return once the link is up."""
        await self._up.wait()

    @property
    def is_up(self) -> bool:
        """False from the moment a loss is known until the link is back."""
        return self._up.is_set()

    def retry(self) -> None:
        """Retry at once, for a present user, if an attempt is due or the attempts had stopped."""
        self._retry.set()

    async def run(self) -> None:
        """Reopen the connection (and its forwards) whenever one is lost; never return."""
        while True:
            why = await self.link.wait_lost()
            was_alive = await self.link.is_alive()
            if not was_alive:
                self.lost(why, None)
                self._up.clear()
            self.is_mending = True
            was_stuck = await self._reopen()
            self.is_mending = False
            self._up.set()
            if was_stuck or not was_alive:
                self.stuck(None)

    async def _reopen(self) -> bool:
        """Open the link, however often that takes. Returns True if the user had to come."""
        attempt, was_stuck = 0, False
        while True:
            self._retry.clear()
            try:
                await self.link.open()
                return was_stuck
            except TunnelkitError as error:
                is_login = isinstance(error, AuthenticationFailed)
                if not (is_login and self.is_up and await self.link.is_alive()):
                    self.lost(error.one_line(), error)
                if isinstance(error, _FOR_A_PERSON):
                    await self._wait_for_person(error)
                    attempt, was_stuck = 0, True
                    continue
                delay_s = backoff_s(attempt, error)
            except Exception as error:
                # Retry after any error: a session that never connects again would be worse.
                log.exception("an attempt to connect failed in an unforeseen way")
                unforeseen = ConnectionFailed(
                    "can't connect",
                    cause=f"{type(error).__name__}: {error}",
                    transient=True,
                    hint="tk tries again; `tk doctor` checks the way there",
                )
                self.lost(unforeseen.one_line(), unforeseen)
                delay_s = backoff_s(attempt, unforeseen)
            attempt += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._retry.wait()

    async def _wait_for_person(self, error: TunnelkitError) -> None:
        if self._retry.is_set():
            return  # the user came during this attempt
        self.stuck(error)
        await self._retry.wait()
        self.stuck(None)
