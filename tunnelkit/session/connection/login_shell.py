"""One shell on the login host that runs commands in turn, at one round trip each.

A command of its own costs a session: a round trip to open it, one to run it, and a third if it has
stdin, since sshd takes none before the command runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import Sequence

from tunnelkit.errors import TunnelkitError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.link.shared.session_slots import command_late
from tunnelkit.model import Completed
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.tasks import cancel_all

#: The shell ends after this time without a command: where MaxSessions is low, others need it.
_IDLE_S = 1.5
_READY_S = 10.0
#: Limit of one answer; nobody asks for more here.
_MOST_BYTES = 16 << 20

# $1 marks the shell's beginning. Each command comes as its size in bytes, a mark of its own for the
# end of its answer, a newline, and shell code: other users of the host see $1, and could write it
# into what a command prints. `read` takes no byte after the newline, `head` none after the code.
# The command gets none of the shell's own descriptors. No profile may have taken from stdin:
# nothing is sent before the mark.
_LOOP = r"""
[ "$(printf xy | head -c 1)" = x ] || exit 69
exec 3<&0 4>&1 </dev/null
printf '%s ready\n' "$1"
while IFS=' ' read -r size mark <&3; do
  code=$(head -c "$size" <&3; printf x)
  err=$(eval "${code%x}" 2>&1 >&4 3<&- 4>&-)
  printf '\n%s %s\n%s\n%s\n' "$mark" "$?" "$err" "$mark"
done
"""


class _Broken(Exception):
    """The shell ended, or did not keep to the form of its answers."""


class LoginShell:
    """Call `start` once the link is up, and `close` in the end. One that can't start, is gone or is
    busy runs nothing: `run` then returns None, and the link has to run the command."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._mark = secrets.token_hex(16)
        self._life: asyncio.Task[None] | None = None
        self._stream: ByteStream | None = None
        self._exchange: asyncio.Task[Completed] | None = None
        self._used = asyncio.Event()
        self._wanted = True
        self._closing = False

    def start(self) -> None:
        """Open the shell, in the background. A shell that was closed does not start again."""
        if self._life is None:
            self._life = asyncio.create_task(self._live())

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed | None:
        """Run one command to its end, as `Link.run` does.

        Returns None if the link must run it. The far side may have begun it if the shell was lost
        meanwhile, as with a reply that a cut has lost. Raises TimeoutExpired."""
        stream = self._stream
        if stream is None or self._exchange is not None or b"\0" in stdin:
            return None
        exchange = asyncio.create_task(self._ask(stream, _code(argv, stdin)))
        self._exchange = exchange
        self._used.set()
        try:
            await asyncio.wait({exchange}, timeout=timeout_s)
            if exchange.done() and not exchange.cancelled() and exchange.exception() is None:
                return exchange.result()
            late = not exchange.done()
        finally:
            self._exchange = None
            self._used.set()
            if not exchange.done() or exchange.cancelled() or exchange.exception() is not None:
                await cancel_all(exchange)
                await self.close()
        if late:
            raise command_late(argv[0], self._link.name, timeout_s, refused=False)
        return None

    def end(self) -> None:
        """Begin to end the shell, once it has run its command; `close` has to follow."""
        self._stream = None
        self._wanted = False
        self._used.set()

    async def close(self) -> None:
        """End the shell; a command that runs goes on there. Idempotent."""
        self.end()
        if self._exchange is not None:  # first: the other one closes its descriptor
            await cancel_all(self._exchange)
        if self._life is not None:
            if not self._closing:
                self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    async def _live(self) -> None:
        """Hold the shell's stream until the shell has been idle for long, or is closed."""
        with contextlib.suppress(TunnelkitError, TimeoutError, OSError, _Broken):
            argv = ["sh", "-c", _LOOP, "tk-shell", self._mark]
            stream = await self._link.open_stream(argv)
            try:
                async with asyncio.timeout(_READY_S):
                    await _read_to(stream, f"{self._mark} ready\n".encode(), bytearray())
                self._stream = stream if self._wanted else None
                await self._until_idle()
            finally:
                self._stream = None
                self._closing = True
                await stream.close()

    async def _until_idle(self) -> None:
        while self._wanted or self._exchange is not None:
            self._used.clear()
            try:
                async with asyncio.timeout(_IDLE_S):
                    await self._used.wait()
            except TimeoutError:
                if self._exchange is None:
                    return

    async def _ask(self, stream: ByteStream, code: bytes) -> Completed:
        mark = secrets.token_hex(16).encode()
        await write_fd(stream.fileno(), b"%d %s\n%s" % (len(code), mark, code))
        came = bytearray()
        out = await _read_to(stream, b"\n%s " % mark, came)
        status = await _read_to(stream, b"\n", came)
        err = await _read_to(stream, b"\n%s\n" % mark, came)
        if came or not status.isdigit() or len(status) > 3:
            raise _Broken
        return Completed(int(status), out, err)


def _code(argv: Sequence[str], stdin: bytes) -> bytes:
    """Return the shell code that runs `argv` with that stdin, which has no NUL."""
    words = shlex.join(argv).encode(errors="surrogateescape")
    if not stdin:
        return words
    return b"printf %%s '%s' | %s" % (stdin.replace(b"'", b"'\"'\"'"), words)


async def _read_to(stream: ByteStream, end: bytes, came: bytearray) -> bytes:
    """Return the bytes before `end`, and take both from `came` and then the stream."""
    begin = 0
    while (at := came.find(end, begin)) < 0:
        begin = max(0, len(came) - len(end))
        data = await read_fd(stream.fileno())
        if not data or len(came) > _MOST_BYTES:
            raise _Broken
        came += data
    found = bytes(came[:at])
    del came[: at + len(end)]
    return found
