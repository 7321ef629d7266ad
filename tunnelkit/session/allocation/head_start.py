"""Shells on the login host that `tk up` opens ahead: for the submission, the mirror, the way in.

A shell costs the login host little, so the first one is always opened, and that for the mirror
where round trips are long. The way in is a step of the scheduler: it pays only there.
"""

from __future__ import annotations

import asyncio

from tunnelkit.link.base import ByteStream, Link
from tunnelkit.model import Completed
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.scheduler.base import Command
from tunnelkit.session.connection.ready_shell import ReadyShell

#: From so many seconds on, two logins of ssh take longer than the scheduler for a step.
_FAR_S = 0.04
#: What a shell waits for comes within this time, or the wait matters more than round trips.
_FIRST_S, _ENTRY_S = 3.0, 5.0
#: The shells read byte by byte, and some copy all for each line. More goes by its own session.
_MOST_STDIN_BYTES, _MOST_STDIN_LINES = 32 * 1024, 1000


class ReadyShells:
    """The shells of one `tk up`, ended with `async with`. Call `begin`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._first: ReadyShell | None = None
        self._entry: asyncio.Task[ReadyShell | None] | None = None
        self._look: asyncio.Task[ReadyShell | None] | None = None

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *error: object) -> None:
        await self._end_unused()

    async def _end_unused(self) -> None:
        later, self._entry, self._look = (self._entry, self._look), None, None
        first, self._first = self._first, None
        for one in filter(None, later):
            await cancel_all(one)
            if not one.cancelled() and one.exception() is None and (shell := one.result()):
                await shell.end_unused()
        if first is not None:
            await first.end_unused()

    def begin(self, *, entry: bool) -> None:
        """Open the shell for the submission; it measures the round trip, too.

        entry: open the one for the way in as well, if that may pay."""
        self._first = ReadyShell(self._link, _FIRST_S)
        self._look = asyncio.create_task(self._open_if_far(self._first, _FIRST_S))
        if entry:
            self._entry = asyncio.create_task(self._open_if_far(self._first, _ENTRY_S))

    async def submit(self, command: Command) -> Completed | None:
        """Run a command; None if no shell is ready. Raises ConnectionFailed, TimeoutExpired."""
        shell = self._first
        if shell is None or not _fits(command):
            return None
        if not shell.is_open:
            # A login host with room for one more session would have opened the shell by now: none
            # may be held there that the submission itself needs.
            await self._end_unused()
            return None
        return await shell.run(command) if shell.take() else None

    async def look(self, command: Command, timeout_s: float) -> Completed | None:
        """Run a command with a stdin, of the mirror's; None if no shell is ready for it.

        Raises as `submit`."""
        look = self._look
        if look is None or not look.done() or not command.stdin or not _fits(command):
            return None
        shell = look.result()
        if shell is None or not shell.is_open or not shell.take():
            return None
        return await shell.run(command, timeout_s)

    async def is_far(self) -> bool:
        """Return True if an early way in pays, by the round trip that the first shell measured."""
        first, entry = self._first, self._entry
        if first is None or entry is None or await asyncio.shield(entry) is None:
            return False
        round_trip_s = await first.measure()
        return round_trip_s is not None and round_trip_s >= _FAR_S

    async def enter(self, argv: list[str]) -> ByteStream:
        """Open a stream to `argv`, by the shell that waits for it, or a new one.

        Raises ConnectionFailed."""
        shell = None if self._entry is None else await asyncio.shield(self._entry)
        if shell is not None and shell.take():
            return await shell.open_stream(argv)
        return await self._link.open_stream(argv)

    async def _open_if_far(self, first: ReadyShell, most_s: float) -> ReadyShell | None:
        # The ping is a round trip too late for this. A shell in vain costs little.
        opening_s = await first.opened()
        if opening_s is None or opening_s < _FAR_S:
            return None
        return ReadyShell(self._link, most_s)


def _fits(command: Command) -> bool:
    given = command.stdin
    return len(given) <= _MOST_STDIN_BYTES and given.count(b"\n") <= _MOST_STDIN_LINES
