"""The states of a session, and which may follow which.

new -> connecting -> preparing -> pending -> starting -> ready <-> reconnecting
                                     ^------ requeued -----|
any before ready -> failed      any after preparing -> ended      any -> closing
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime.event_log import Record

log = logging.getLogger("tunnelkit.session")


class SessionState(StrEnum):
    """The state of a session; its value is what `tk status --json` shows."""

    NEW = "new"
    #: The link to the login host is being opened.
    CONNECTING = "connecting"
    #: The login host is being prepared: Python, scheduler, the agent's zip.
    PREPARING = "preparing"
    #: The job waits in the queue.
    PENDING = "pending"
    #: The job runs; its agent is being reached.
    STARTING = "starting"
    READY = "ready"
    #: A connection is lost and is being opened again.
    RECONNECTING = "reconnecting"
    #: The way up failed; the session ends.
    FAILED = "failed"
    #: The allocation is over; the session stays to tell commands the reason.
    ENDED = "ended"
    CLOSING = "closing"


_S = SessionState
_LOST_OR_OVER = {_S.RECONNECTING, _S.FAILED, _S.ENDED, _S.CLOSING}
#: From each state, the states that may follow. The last three are final: late news of a
#: connection changes nothing any more.
TRANSITIONS: Mapping[SessionState, frozenset[SessionState]] = MappingProxyType(
    {
        _S.NEW: frozenset({_S.CONNECTING, _S.FAILED, _S.ENDED, _S.CLOSING}),
        _S.CONNECTING: frozenset({_S.PREPARING} | _LOST_OR_OVER),
        _S.PREPARING: frozenset({_S.PENDING} | _LOST_OR_OVER),
        _S.PENDING: frozenset({_S.STARTING} | _LOST_OR_OVER),
        # The agent answers before the mirror has started: ready, and then perhaps failed.
        # A job that was taken over and is ending is replaced by another: pending again.
        _S.STARTING: frozenset({_S.READY, _S.PENDING} | _LOST_OR_OVER),
        _S.READY: frozenset({_S.PENDING, _S.STARTING} | _LOST_OR_OVER),
        _S.RECONNECTING: frozenset(
            {_S.PREPARING, _S.PENDING, _S.STARTING, _S.READY, _S.FAILED, _S.ENDED, _S.CLOSING}
        ),
        _S.FAILED: frozenset({_S.CLOSING}),
        _S.ENDED: frozenset({_S.CLOSING}),
        _S.CLOSING: frozenset(),
    }
)
FINAL = frozenset({_S.FAILED, _S.ENDED, _S.CLOSING})


class StateMachine:
    """The state of one session, with a detail for the user, and the error that ended it.

    changed: called after each change, also after those that `poke` reports. record: takes each new
    state or detail, and the failure, as an event.
    """

    def __init__(self, changed: Callable[[], None], record: Record) -> None:
        self.state = SessionState.NEW
        self.detail = ""
        #: The error that every command gets from now on, or None.
        self.failure: TunnelkitError | None = None
        #: Unix time of the last change of state.
        self.since = time.time()
        self._changed = changed
        self._record = record
        self._change = asyncio.Event()

    @property
    def is_final(self) -> bool:
        """True if the session never becomes ready again."""
        return self.state in FINAL

    def become(
        self, state: SessionState, detail: str = "", error: TunnelkitError | None = None
    ) -> None:
        """Enter `state`, or change its detail. A change that `TRANSITIONS` lacks is not made.

        error: the reason, if that is an error.
        """
        if (state, detail) == (self.state, self.detail):
            return
        if state is not self.state:
            if state not in TRANSITIONS[self.state]:
                level = logging.DEBUG if self.is_final else logging.ERROR
                log.log(level, "state %s can't follow %s: %s", state, self.state, detail)
                return
            self.since = time.time()
        self.state, self.detail = state, detail
        self._record("state", detail, state=state, error=error)
        self.poke()

    def fail(self, state: SessionState, failure: TunnelkitError) -> None:
        """Enter `failed` or `ended`; every command gets `failure` from now on."""
        self.failure = failure
        self._record("error", failure.one_line(), error=failure)
        self.become(state, failure.one_line())

    def check(self) -> None:
        """Raise the failure if there is one."""
        if self.failure is not None:
            raise self.failure

    def poke(self) -> None:
        """Wake those that wait: something else of the session has changed."""
        change, self._change = self._change, asyncio.Event()
        change.set()
        self._changed()

    async def wait_change(self) -> None:
        """Return after the next change."""
        await self._change.wait()
