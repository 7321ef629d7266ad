"""The local end of an ssh forward: a port that serves our own user alone.

ssh can't ask who connects to a LocalForward, so it listens at a unix socket in the link's private
directory. tk has the port, asks the kernel whose each connection is, and carries the bytes between.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from tunnelkit.errors import UsageError
from tunnelkit.link import ports
from tunnelkit.mux.listener import Listener
from tunnelkit.mux.waiting import cancel_all

_READ_BYTES = 64 * 1024
#: Reads a turn; then others have theirs.
_READS = 4
#: A unix socket whose backlog is full refuses at once, so we ask again.
_CONNECT_S, _AGAIN_S = 5.0, 0.01


class Gates:
    """All gates of one link, and every connection that they carry."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, port: int, path: Path) -> Gate:
        """Listen on 127.0.0.1:`port` for ssh's socket `path`. Raises UsageError if it is taken."""
        gate = Gate(path, self._keep)
        gate.open(port)
        return gate

    async def close(self) -> None:
        """End every connection."""
        await cancel_all(*self._tasks)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Gate:
    """One port. Made by `Gates`; `close` stops listening, connections go on."""

    def __init__(self, path: Path, keep: Callable[[asyncio.Task[None]], None]) -> None:
        self._path = path
        self._keep = keep
        self._listener = Listener(self._connected)

    def open(self, port: int) -> None:
        try:
            self._listener.open(port)
        except OSError as error:
            ports.check_free(port)
            raise UsageError(
                f"local port {port} can't be had",
                cause=error.strerror,
                hint="choose another local port",
            ) from error

    def close(self) -> None:
        """Give the port up. Idempotent."""
        self._listener.close()

    def _connected(self, sock: socket.socket) -> None:
        self._keep(asyncio.create_task(_carry(sock, self._path)))


async def _carry(sock: socket.socket, path: Path) -> None:
    with sock, socket.socket(socket.AF_UNIX) as far:
        far.setblocking(False)
        with contextlib.suppress(OSError):
            await _connect(far, str(path))
            await _join(sock, far)


async def _connect(sock: socket.socket, path: str) -> None:
    ends = asyncio.get_running_loop().time() + _CONNECT_S
    while True:
        try:
            sock.connect(path)
            return
        except BlockingIOError:
            if asyncio.get_running_loop().time() > ends:
                raise
        await asyncio.sleep(_AGAIN_S)


async def _join(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes and half-closes both ways until both have ended."""
    ways = [_Way(one, other), _Way(other, one)]
    try:
        for way in ways:
            way.start()
        await asyncio.gather(*(way.over for way in ways))
    finally:
        for way in ways:
            way.stop()


class _Way:
    """From one socket to another, by callbacks. `over` raises ConnectionResetError on a reset,
    which then is one on both sides."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self._source = source
        self._sink = sink
        self._unsent = memoryview(b"")
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        self._loop.add_reader(self._source, self._readable)

    def stop(self) -> None:
        """Let go of both sockets. Idempotent."""
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._sink)
        if not self.over.done():
            self.over.cancel()

    def _readable(self) -> None:
        for _ in range(_READS):
            try:
                data = self._source.recv(_READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                _reset_on_close(self._sink)
                self._end(error)
                return
            if not data:
                with contextlib.suppress(OSError):
                    self._sink.shutdown(socket.SHUT_WR)
                self._end()
                return
            if not self._send(memoryview(data)):
                return

    def _send(self, data: memoryview) -> bool:
        """Whether all is out; the rest is sent once the sink takes more."""
        try:
            while data:
                data = data[self._sink.send(data) :]
        except (BlockingIOError, InterruptedError):
            self._unsent = data
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._writable)
            return False
        except OSError:
            # Nobody reads there any more: whoever writes here is to learn it.
            with contextlib.suppress(OSError):
                self._source.shutdown(socket.SHUT_RD)
            self._end()
            return False
        return True

    def _writable(self) -> None:
        self._loop.remove_writer(self._sink)
        if self._send(self._unsent):
            self.start()

    def _end(self, error: OSError | None = None) -> None:
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._sink)
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


def _reset_on_close(sock: socket.socket) -> None:
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
