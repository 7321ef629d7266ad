"""Shells on the login host that wait for their command.

An exec over ssh costs two round trips, and its stdin a third. A shell that was opened while
something else was under way takes its command as one more message: one round trip.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import time
from collections.abc import Sequence

from tunnelkit.errors import ConnectionFailed, TimeoutExpired, TunnelkitError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.model import Completed
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.scheduler.base import Command

#: Limit for the answer to the ping.
_PING_S = 10.0
_RUN_S = 30.0
#: ssh's own exit status if the connection is lost.
_SSH_FAILED = 255
_MOST_BYTES = 32 << 20
_ANY_BYTES = ("utf-8", "surrogateescape")

# $1 a mark that no login banner prints. Says the mark, answers the first line with it (the ping),
# then runs the lines up to the mark. `read` takes no byte too many: the command has the rest. If
# the mark does not come, nothing is run. The names are none that a user exports: the command
# gets the user's environment as it is.
_WAIT = r"""
_tk_mark=$1 _tk_text=
shift
printf '%s.' "$_tk_mark"
IFS= read -r _tk_line || exit 0
printf '%s\n' "$_tk_mark"
while IFS= read -r _tk_line; do
  if [ "$_tk_line" = "$_tk_mark" ]; then eval "$_tk_text"; exit; fi
  _tk_text="$_tk_text$_tk_line
"
done
"""


class ReadyShell:
    """One shell on the login host, for one command. It is opened at once, by a task of its own.

    Call `take`, then `run` or `open_stream`. Else call `end_unused`. It ends by itself after
    `most_s`: it must not keep a session of the login host from others."""

    def __init__(self, link: Link, most_s: float) -> None:
        self._link, self._most_s = link, most_s
        self._mark = f"tk-{secrets.token_hex(8)}"
        self._said = bytearray()
        self._pinged = self._taken = False
        #: Seconds of a round trip, by the ping; None if it was not measured.
        self.round_trip_s: float | None = None
        self._opening_s: float | None = None
        self._measured, self._unwanted = asyncio.Event(), asyncio.Event()
        self._opening = asyncio.create_task(self._open())
        self._minding: asyncio.Task[None] | None = None

    def take(self) -> bool:
        """True if the shell may be used; it is for one command alone."""
        taken, self._taken = self._taken, True
        return not taken

    @property
    def is_open(self) -> bool:
        """True once the login host has given the shell a session."""
        done = self._opening.done() and not self._opening.cancelled()
        return done and self._opening.exception() is None

    async def run(self, command: Command, timeout_s: float = _RUN_S) -> Completed:
        """Run a command to its end, with its stdin. Raises ConnectionFailed, TimeoutExpired.

        Of its stderr the last lines are kept."""
        text = shlex.join(command.argv)
        if command.stdin:
            text = f"{_printed(command.stdin)} | {text}"
        try:
            async with asyncio.timeout(timeout_s):
                stream = await asyncio.shield(self._opening)
                await self._say(stream, text)
                return await self._answer(stream)
        except TimeoutError as error:
            raise TimeoutExpired(
                f"`{command.argv[0]}` on {self._link.name} took more than {timeout_s:g} s",
                hint="tk tries again; `tk doctor` checks the way there",
                transient=True,
            ) from error
        except OSError as error:
            raise self._lost(str(error)) from error
        finally:
            await self._end()

    async def open_stream(self, argv: Sequence[str]) -> ByteStream:
        """Run `argv` as a stream, which the caller closes. The mark comes before its output.

        Raises ConnectionFailed."""
        try:
            stream = await asyncio.shield(self._opening)
            if self._minding is not None:
                await cancel_all(self._minding)  # the caller reads from here on
            await self._say(stream, f"exec {shlex.join(argv)}")
        except OSError as error:
            await self._end()
            raise self._lost(str(error)) from error
        except BaseException:
            await self._end()
            raise
        return stream

    async def opened(self) -> float | None:
        """Return the seconds that the opening took, once it is over; None if it failed."""
        await asyncio.wait([self._opening])
        return self._opening_s

    async def measure(self) -> float | None:
        """Return the seconds of a round trip; None if the shell does not answer."""
        with contextlib.suppress(TunnelkitError):
            await asyncio.shield(self._opening)
            await self._measured.wait()
        return self.round_trip_s

    async def end_unused(self) -> None:
        """End the shell, unless somebody has taken it. Idempotent. One that is open ends in its
        own time: a round trip, for which nobody has to wait."""
        if self.is_open:
            self._unwanted.set()
        elif self.take():
            await self._end()

    async def _end(self) -> None:
        self._opening.cancel()
        (stream,) = await asyncio.gather(self._opening, return_exceptions=True)
        if self._minding is not None:
            await cancel_all(self._minding)
        if not isinstance(stream, BaseException):
            await stream.close()

    async def _open(self) -> ByteStream:
        begun = time.monotonic()
        stream = await self._link.open_stream(["sh", "-c", _WAIT, "sh", self._mark])
        self._opening_s = time.monotonic() - begun
        self._minding = asyncio.create_task(self._mind(stream))
        return stream

    async def _mind(self, stream: ByteStream) -> None:
        measuring = asyncio.create_task(self._measure(stream))
        measuring.add_done_callback(lambda task: self._measured.set())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._most_s):
                    await self._unwanted.wait()
            if self.take():
                await cancel_all(measuring)
                await stream.close()
                return
            await measuring  # the command waits for it
        finally:
            await cancel_all(measuring)

    async def _measure(self, stream: ByteStream) -> None:
        mark = self._mark.encode()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PING_S):
                if not await self._read_until(stream, mark + b".") or self._pinged:
                    return
                self._pinged = True
                begun = time.monotonic()
                await write_fd(stream.fileno(), b"\n")
                if await self._read_until(stream, mark + b"\n"):
                    self.round_trip_s = time.monotonic() - begun

    async def _read_until(self, stream: ByteStream, text: bytes) -> bool:
        while text not in self._said:
            data = await read_fd(stream.fileno())
            self._said += data
            if not data or len(self._said) > _MOST_BYTES:
                return False
        return True

    async def _say(self, stream: ByteStream, text: str) -> None:
        ping = "" if self._pinged else "\n"
        self._pinged = True
        await write_fd(stream.fileno(), f"{ping}{text}\n{self._mark}\n".encode(*_ANY_BYTES))

    async def _answer(self, stream: ByteStream) -> Completed:
        await self._measured.wait()
        while len(self._said) <= _MOST_BYTES and (data := await read_fd(stream.fileno())):
            self._said += data
        code = await stream.wait()
        _, begun, said = bytes(self._said).partition(f"{self._mark}\n".encode())
        if code == _SSH_FAILED or not begun:
            raise self._lost(stream.diagnosis() or f"exit status {code}")
        return Completed(code, said, stream.diagnosis().encode())

    def _lost(self, why: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"the connection to {self._link.name} was lost",
            cause=why,
            transient=True,
            hint="tk tries again; `tk doctor` checks the way there",
        )


def _printed(data: bytes) -> str:
    """Return a command that prints `data`: the shell's own, so that it stands in no argv."""
    text = data.replace(b"\\", b"\\\\").replace(b"\0", b"\\0000").decode(*_ANY_BYTES)
    return f"printf %b {shlex.quote(text)}"
