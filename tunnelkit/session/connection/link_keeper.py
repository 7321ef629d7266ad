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
    then) and each failed attempt. Not called while all that runs over the link goes on.
    stuck: called with the error when only the user can bring the link back (`retry`), with None
    when that is tried and when the link is back. A login that has ended where what runs goes on
    (see `Link.is_alive`) is no loss: only `stuck` is called.
    """

    link: Link
    lost: Callable[[str, TunnelkitError | None], None]
    stuck: Callable[[TunnelkitError | None], None]
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _retry: asyncio.Event = field(default_factory=asyncio.Event)
    #: Cleared while the link is up and its login has ended.
    _login_holds: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._login_holds.set()

    async def open(self) -> None:
        """Connect for the first time. Raises as `Link.open`."""
        await self.link.open()
        self._up.set()

    async def wait_up(self) -> None:
        """Return once the link is up, and opens what is new."""
        await self._up.wait()
        await self._login_holds.wait()

    async def wait_login(self) -> None:
        """Return once no user has to log in again, whether the link is up or not."""
        await self._login_holds.wait()

    @property
    def needs_login(self) -> bool:
        """True from the refusal of the login, while what runs goes on, until a new one holds."""
        return not self._login_holds.is_set()

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
            was_quiet = await self._reopen()
            self._up.set()
            self._login_holds.set()
            if not was_alive or not was_quiet:
                self.stuck(None)

    async def _reopen(self) -> bool:
        """Open the link, however often that takes. Returns True if no attempt failed."""
        attempt, is_quiet = 0, True
        while True:
            self._retry.clear()
            try:
                await self.link.open()
                return is_quiet
            except TunnelkitError as error:
                is_quiet = False
                if self.is_up and await self.link.is_alive():
                    if isinstance(error, AuthenticationFailed):
                        self._login_holds.clear()
                else:
                    self.lost(error.one_line(), error)
                    self._up.clear()
                if isinstance(error, _FOR_A_PERSON):
                    await self._wait_for_person(error)
                    attempt = 0
                    continue
                delay_s = backoff_s(attempt, error)
            except Exception as error:
                # Retry after any error: a session that never connects again would be worse.
                is_quiet = False
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
