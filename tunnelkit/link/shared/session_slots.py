"""The sessions of one host: its sshd gives MaxSessions at once, tk asks for fewer."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncGenerator, AsyncIterator

from tunnelkit.errors import ConnectionFailed, TimeoutExpired

#: How long a stream may wait for a session.
STREAM_START_S = 60.0
#: The longest pause between two tries of the oldest command that waits, and of the others.
_OFTEN_S, _SELDOM_S = 0.5, 3.0


class LocalStream:
    """A far process's stdin and stdout as one local socket; see `base.ByteStream`."""

    _sock: socket.socket
    _ended: asyncio.Task[int]

    def fileno(self) -> int:
        """See `base.ByteStream`."""
        return self._sock.fileno()

    @property
    def ended(self) -> bool:
        """True if the far process or the link has ended."""
        return self._ended.done()

    async def wait(self) -> int:
        """Return the exit status once the far process or the link has ended; 255 without one."""
        return await asyncio.shield(self._ended)


class SessionSlots:
    """Our own limit of sessions at once on one host. A command holds `command` while it runs."""

    def __init__(self, limit: int) -> None:
        self.command = asyncio.Semaphore(limit)
        # Streams stay for long: some slots are kept from them, or no command could run.
        self._stream = asyncio.Semaphore(max(1, limit - 2))
        self._turns = asyncio.Lock()

    @property
    def crowded(self) -> bool:
        """True while somebody waits who was refused."""
        return self._turns.locked()

    async def stream(self) -> contextlib.ExitStack:
        """Wait for a stream's slot; closing the stack gives it back."""
        with contextlib.ExitStack() as stack:
            for slots in (self._stream, self.command):
                await slots.acquire()
                stack.callback(slots.release)
            return stack.pop_all()

    def attempts(self) -> contextlib.aclosing[AsyncGenerator[None]]:
        """Return endless tries, each after the host has refused the one before; the caller bounds
        the time. Use it as `async with ... as tries`.

        Those that were refused take turns: the oldest tries often, and keeps its turn until it has
        left; the others try seldom. Each try is an ssh, and where the host gives one session they
        would slow each other down, and luck would choose who waits for long."""
        return contextlib.aclosing(self._attempts())

    async def _attempts(self) -> AsyncGenerator[None]:
        if not self._turns.locked():
            yield
        turn = asyncio.ensure_future(self._turns.acquire())
        pause_s = 0.05
        try:
            while True:
                if turn.done():
                    await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                    pause_s = min(_OFTEN_S, pause_s * 2)
                else:
                    # The oldest may be a long command, and the host have sessions for others.
                    await asyncio.wait({turn}, timeout=_SELDOM_S)
                yield
        finally:
            turn.cancel()
            (got,) = await asyncio.gather(turn, return_exceptions=True)
            if got is True:
                self._turns.release()


def command_late(
    program: str, host: str, timeout_s: float, *, refused: bool, words: str = ""
) -> TimeoutExpired:
    """The error of a command that was not over in time. refused: the last that was heard is
    that the host gives no session; `words`: its own, if there were any."""
    none_left = f"{host} allows no further session" + (f" ({words})" if words else "")
    return TimeoutExpired(
        f"`{program}` on {host} took more than {timeout_s:g} s",
        cause=none_left if refused else None,
        hint="sshd there has a low MaxSessions; end other streams" if refused else None,
        transient=True,
    )


@contextlib.asynccontextmanager
async def stream_start(host: str) -> AsyncIterator[None]:
    """Bounds a stream's way to its session: our own slots, then what the host gives. Raises
    ConnectionFailed if there was none within STREAM_START_S."""
    try:
        async with asyncio.timeout(STREAM_START_S):
            yield
    except TimeoutError as error:
        raise ConnectionFailed(
            f"{host} allows no further session",
            cause=f"waited {STREAM_START_S:.0f} s for one to end",
            hint="close other streams of this session",
            transient=True,
        ) from error
