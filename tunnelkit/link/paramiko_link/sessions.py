"""Commands and byte streams over one paramiko connection, queued below MaxSessions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from paramiko import Channel, SSHException

from tunnelkit.child_process import MOST_BYTES, MOST_ERROR_BYTES, stream_pair, too_much
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.paramiko_link.byte_pump import BytePump, Tail
from tunnelkit.link.paramiko_link.connection import ParamikoConnection
from tunnelkit.link.paramiko_link.thread_tasks import in_thread, start_thread
from tunnelkit.link.paramiko_link.transport import AuthRefused, SshTransport
from tunnelkit.link.shared.loss import lost
from tunnelkit.link.shared.session_slots import (
    LocalStream,
    SessionSlots,
    command_late,
    stream_start,
)
from tunnelkit.model import Completed
from tunnelkit.remote_command import remote_command

T = TypeVar("T")

_OPEN_S = 15.0
_READ_BYTES = 1 << 20
_FLUSH_S = 0.5
_GONE = (OSError, EOFError, SSHException)


class ChannelStream(LocalStream):
    """A channel of the connection; its status is 255 without an exit status."""

    def __init__(self, channel: Channel, release: Callable[[], None]) -> None:
        self._channel = channel
        self._stderr = Tail()
        self._sock, theirs = stream_pair()
        loop = asyncio.get_running_loop()
        done = self._done = asyncio.Event()
        self._over = asyncio.Event()

        def tell(event: asyncio.Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

        self._pump = BytePump(
            theirs,
            channel,
            err=self._stderr.feed,
            over=lambda: tell(self._over),
            done=lambda: tell(done),
        )
        self._pump.start()
        self._ended = asyncio.create_task(self._watch(release))

    def diagnosis(self) -> str:
        """Return the last bytes of stderr so far as text."""
        return self._stderr.text()

    async def cut(self) -> None:
        """End the stream with its link."""
        self._pump.stop()
        await self.close()

    async def close(self) -> None:
        """End the stream. The far process sees its stdin end and is not killed."""
        self._sock.close()
        if not self._ended.done():
            # What was written last is let out first, where that goes at once.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await self._done.wait()
            self._pump.stop()
        await self.wait()

    async def _watch(self, release: Callable[[], None]) -> int:
        try:
            await self._done.wait()
            return self._channel.exit_status if self._channel.exit_status >= 0 else 255
        finally:
            self._pump.join(1.0)
            release()


class ParamikoSessions:
    """Runs commands over `connection`, at most `limit` at once."""

    def __init__(self, connection: ParamikoConnection, *, limit: int) -> None:
        self._connection = connection
        self._slots = SessionSlots(limit)
        self._streams: set[ChannelStream] = set()

    async def run(self, words: Sequence[str], *, stdin: bytes, timeout_s: float) -> Completed:
        """See `base.Link.run`; the time in the queue counts."""
        text = remote_command(words)
        refused: AuthRefused | None = None
        try:
            async with asyncio.timeout(timeout_s), self._slots.attempts() as tries:
                async for _ in tries:
                    async with self._slots.command:
                        try:
                            return await self._run(text, stdin)
                        except AuthRefused as error:
                            refused = error
        except TimeoutError as error:
            raise command_late(
                words[0], self._connection.host, timeout_s,
                refused=refused is not None or self._slots.crowded,
                words=refused.text if refused else "",
            ) from error  # fmt: skip
        raise AssertionError("unreachable")

    async def open_stream(self, words: Sequence[str]) -> ChannelStream:
        """See `base.Link.open_stream`. Raises ConnectionFailed if no session can be opened."""
        text = remote_command(words)
        async with stream_start(self._connection.host):
            with await self._slots.stream() as stack:
                channel = await self._channel(lambda one: one.exec_command(text))
                stream = ChannelStream(channel, stack.pop_all().close)
        self._streams.add(stream)
        stream._ended.add_done_callback(lambda _: self._streams.discard(stream))
        return stream

    async def channel(self, start: Callable[[Channel], object]) -> Channel:
        """A session channel on which `start` has been done; waits where sshd has none to give.
        Raises ConnectionFailed."""
        async with stream_start(self._connection.host):
            return await self._channel(start)

    async def close(self) -> None:
        """Close all streams."""
        await asyncio.gather(*(stream.cut() for stream in tuple(self._streams)))

    # -- inside

    async def _channel(self, start: Callable[[Channel], object]) -> Channel:
        async with self._slots.attempts() as tries:
            async for _ in tries:
                with contextlib.suppress(AuthRefused):
                    return await self._blocking(lambda held: _opened(self, held, start))
        raise AssertionError("unreachable")

    async def _run(self, text: str, stdin: bytes) -> Completed:
        def work(held: _Held) -> Completed:
            channel = _opened(self, held, lambda one: one.exec_command(text))
            return _communicate(channel, stdin)

        done = await self._blocking(work)
        if done.exit_code >= 0:
            return done
        # No status came: a signal ended the command, or the connection broke.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S if self._transport.is_active() else 5.0):
                raise lost(self._connection.host, await self._connection.wait())
        return Completed(255, done.stdout, done.stderr)

    async def _blocking(self, work: Callable[[_Held], T]) -> T:
        """`work` in a thread; the channel that it holds is closed if nobody waits any more."""
        held = _Held()
        transport = self._transport
        abort = held.close
        try:
            return await in_thread("command", lambda: work(held), abort=abort)
        except AuthRefused:
            abort()
            raise
        except _GONE as error:
            abort()
            if not transport.is_active() or not self._connection.is_up:
                raise lost(self._connection.host, str(error) or "it ended") from error
            if str(error) == "Unable to open channel.":  # refused beside another one's refusal
                raise AuthRefused(0, "open failed") from error
            raise ConnectionFailed(
                f"no session on {self._connection.host}",
                cause=str(error),
                transient=True,
                hint="tk tries again; `tk doctor` checks the way there",
            ) from error

    @property
    def _transport(self) -> SshTransport:
        return self._connection.transport


class _Held:
    """The channel of work in a thread, which may be given up before there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._closed = False

    def hold(self, channel: Channel) -> None:
        """Raises EOFError if the work was given up."""
        with self._lock:
            self._channel = channel
            if not self._closed:
                return
        self.close()
        raise EOFError("given up")

    def close(self) -> None:
        """End the channel, from any thread; wakes those that read or write it."""
        with self._lock:
            self._closed, channel = True, self._channel
        if channel is not None:
            with contextlib.suppress(*_GONE):
                channel.close()


def _opened(sessions: ParamikoSessions, held: _Held, start: Callable[[Channel], object]) -> Channel:
    channel = sessions._transport.session(timeout_s=_OPEN_S)
    held.hold(channel)
    start(channel)
    return channel


def _communicate(channel: Channel, stdin: bytes) -> Completed:
    """Feed a command, read both its outputs to their ends, and its status (-1: none came)."""
    errors: list[bytes] = []

    def read_errors() -> None:
        with contextlib.suppress(*_GONE):
            while data := channel.recv_stderr(_READ_BYTES):
                errors.append(data[: MOST_ERROR_BYTES - sum(map(len, errors))])

    def feed() -> None:
        # A command need not read its stdin.
        with contextlib.suppress(*_GONE):
            channel.sendall(stdin)
            channel.shutdown_write()

    beside = [start_thread("stderr", read_errors)]
    if stdin:
        beside.append(start_thread("stdin", feed))
    else:
        with contextlib.suppress(*_GONE):
            channel.shutdown_write()
    out, size_bytes = list[bytes](), 0
    with contextlib.suppress(*_GONE):
        while size_bytes <= MOST_BYTES and (data := channel.recv(_READ_BYTES)):
            out.append(data)
            size_bytes += len(data)
    if size_bytes > MOST_BYTES:
        channel.close()
        raise too_much("a command on the login host")
    status = channel.recv_exit_status()
    channel.close()
    for thread in beside:
        thread.join()
    return Completed(status, b"".join(out), b"".join(errors))
