"""A session's way up as `tk up` shows it: progress, its questions, and Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from tunnelkit.cli.terminal import tty
from tunnelkit.cli.terminal.output import StatusLine, note
from tunnelkit.cli.views.status import sending
from tunnelkit.session.runtime.control_calls import (
    SAY,
    SENDING,
    STATE,
    Down,
    Follow,
    Prompt,
    Settled,
)

if TYPE_CHECKING:
    from tunnelkit.mirror.progress import ProgressInfo
    from tunnelkit.session.runtime.control_answers import Progress, SayNotice, StateNotice
    from tunnelkit.session.runtime.control_client import SessionClient
    from tunnelkit.session.runtime.control_message import Request
    from tunnelkit.session.runtime.paths import SessionPaths
    from tunnelkit.session.runtime.status import SessionStatus

_SETTLED = Settled()

_WORDS = {
    "connecting": "connecting to {}",
    "preparing": "looking at {}: scheduler, Python",
    "pending": "queued, {}",
    "starting": "starting the agent on {}",
    "reconnecting": "reconnecting: {}",
}
_BARE = {"pending": "asking for the node", "closing": "cleaning up"}
#: Ctrl-C in any other state only ends the waiting: there is work that must not be lost.
_WAY_UP = {"new", "connecting", "preparing", "pending", "starting"}
_WITH_JOB = {"pending", "starting"}
#: Without a line to rewrite, a copy that takes longer is reported once.
_LONG_S = 5.0


def progress(state: str, detail: str) -> str:
    """Return a state of the way up in words; empty for one that is not shown."""
    if detail and state in _WORDS:
        return _WORDS[state].format(detail)
    return _BARE.get(state, "")


class Follower:
    """Shows one session on its way up. Call `follow` once, inside `minding_interrupts`.

    may_cancel: False: Ctrl-C only ends the wait. call: its answer ends the wait.
    """

    def __init__(
        self,
        paths: SessionPaths,
        *,
        may_cancel: bool = True,
        call: Request[SessionStatus] = _SETTLED,
    ) -> None:
        self._call = call
        self._paths = paths
        self._may_cancel = may_cancel
        self._line = StatusLine()
        self._state = ""
        self._detail = ""
        self._sending = ""
        self._sending_since: float | None = None
        self._told_long = False
        self._interrupted = asyncio.Event()
        #: One question at a time, and no progress over it.
        self._asking = asyncio.Lock()

    @contextlib.contextmanager
    def minding_interrupts(self) -> Iterator[None]:
        """Take Ctrl-C over: from before a session is started, or it would be left alone."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def follow(self) -> SessionStatus:
        """Wait until the session is ready and return its status.

        Raises the session's failure; KeyboardInterrupt after Ctrl-C.
        """
        from tunnelkit.session.runtime import control_client

        notices = dict(
            [
                SAY.read_by(self._said),
                STATE.read_by(self._changed),
                SENDING.read_by(self._copying),
                Prompt.served_by(self._asked),
            ]
        )
        try:
            async with control_client.connect(self._paths, notices=notices) as session:
                status = await session.call(Follow())
                await self._changed({"state": status["state"], "detail": status["detail"]})
                settled = asyncio.create_task(session.call(self._call))
                try:
                    await self._until(settled, session)
                    return settled.result()
                finally:
                    settled.cancel()
                    await asyncio.gather(settled, return_exceptions=True)
        finally:
            self._line.clear()

    async def _until(self, settled: asyncio.Task[SessionStatus], session: SessionClient) -> None:
        while not settled.done():
            stop = asyncio.create_task(self._interrupted.wait())
            await asyncio.wait([settled, stop], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if self._interrupted.is_set() and not settled.done():
                await self._on_interrupt(session)

    # -- notices of the session -------------------------------------------

    async def _said(self, notice: SayNotice) -> None:
        async with self._asking:
            self._line.clear()
            note(f"  {notice['text']}")
            self._show()

    async def _changed(self, notice: StateNotice) -> None:
        self._state, self._detail = notice["state"], notice["detail"]
        if not self._asking.locked():
            self._show()

    async def _copying(self, notice: Progress) -> None:
        """Show the progress of the first copy; {} when it is done."""
        text = sending(cast("ProgressInfo", notice)) if notice else ""
        if self._line.live:
            self._sending = text
            if not self._asking.locked():
                self._show()
        elif text and not self._told_long:
            now = time.monotonic()
            self._sending_since = self._sending_since or now
            if now - self._sending_since > _LONG_S:
                self._told_long = True
                note(f"  {text}")

    def _show(self) -> None:
        text = "; ".join(filter(None, (self._sending, progress(self._state, self._detail))))
        if text:
            self._line.update(f"  {text}")
        else:
            self._line.clear()

    async def _asked(self, prompt: Prompt) -> str | None:
        """Ask the user for ssh: a password, a second factor, a host key."""
        if not sys.stdin.isatty():
            return None
        return await self._ask(prompt.text, echo=prompt.echo)

    async def _ask(self, prompt: str, *, echo: bool = True) -> str | None:
        async with self._asking:
            self._line.clear()
            return await tty.ask(prompt, echo=echo, interrupted=self._interrupted)

    # -- Ctrl-C -----------------------------------------------------------

    async def _on_interrupt(self, session: SessionClient) -> None:
        """Handle Ctrl-C: cancel the job, leave it queued, or go on waiting."""
        choice = "c" if self._state in _WAY_UP and self._may_cancel else "l"
        if self._state in _WITH_JOB and sys.stdin.isatty() and self._may_cancel:
            choice = await self._choose()
        if choice == "w":
            self._show()
            return
        if choice == "l":
            where = "left in the queue" if self._state == "pending" else "left as it is"
            note(f"{where}: `tk up` waits again, `tk status` shows it, `tk down` cancels it")
        else:
            await session.call(Down())
            await gone(self._paths)
            self._line.clear()
            note("cancelled")
        raise KeyboardInterrupt

    async def _choose(self) -> str:
        """Return c, l or w. A second Ctrl-C means c; the end of input l."""
        while True:
            self._interrupted.clear()
            answer = await self._ask("[c]ancel the job, [l]eave it queued, or [w]ait on? ")
            if self._interrupted.is_set():
                return "c"
            choice = "l" if answer is None else answer.strip().lower()[:1]
            if choice in ("c", "l", "w"):
                return choice


async def gone(paths: SessionPaths) -> None:
    """Wait until the daemon has ended: its lock is free. Raises TimeoutExpired."""
    from tunnelkit.session.runtime.paths import wait_unlocked

    await wait_unlocked(paths, timeout_s=60.0)
