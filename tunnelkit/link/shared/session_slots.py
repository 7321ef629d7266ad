"""The sessions of one host: its sshd gives MaxSessions at once, tk asks for fewer."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator

from tunnelkit.errors import ConnectionFailed, TimeoutExpired

#: How long a stream may wait for a session.
STREAM_START_S = 60.0


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

    async def stream(self) -> contextlib.ExitStack:
        """Wait for a stream's slot; closing the stack gives it back."""
        with contextlib.ExitStack() as stack:
            for slots in (self._stream, self.command):
                await slots.acquire()
                stack.callback(slots.release)
            return stack.pop_all()


async def attempts() -> AsyncIterator[None]:
    """Endless tries with a jittered, growing pause; the caller bounds the time."""
    pause_s = 0.05
    while True:
        yield
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
        pause_s = min(1.0, pause_s * 2)


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
