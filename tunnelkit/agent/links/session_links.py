"""Links that are handed in, and the one session they belong to.

A bridge process (`attach`) connects to our socket and passes two descriptors.
Over them the session says hello: a known client goes on where it was, a new one
takes over from the old.
"""

import array
import asyncio
import contextlib
import os
import socket
import struct
import sys
from typing import Callable, List, Optional, Set

from tunnelkit.mux.fd_io import write_fd
from tunnelkit.mux.hello import take_hello
from tunnelkit.mux.listener import is_exhausted, pause
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import Hello, Status

_HELLO_TIMEOUT_S = 20.0
_MAX_REMEMBERED = 16

#: Makes the Mux of a new client; the argument is its endpoint.
MakeMux = Callable[[Endpoint], Mux]


class SessionLinks:
    """Accepts bridges on a listening unix socket and attaches their links."""

    def __init__(self, listener: socket.socket, make_mux: MakeMux) -> None:
        self._listener = listener
        self._make_mux = make_mux
        self._server_id = os.urandom(16)
        self._client_id: Optional[bytes] = None
        self._mux: Optional[Mux] = None
        self._superseded: List[bytes] = []
        self._tasks: Set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to accept."""
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def leave(self) -> None:
        """Accept no more, and remove the socket's file. Links go on. Idempotent."""
        if self._listener.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._listener.getsockname())
        self._listener.close()

    async def stop(self, reason: str) -> None:
        """End the session's conversation and let go of all links."""
        self.leave()
        if self._mux is not None:
            self._mux.end(reason)
        # BYE may still be in the link's buffer; a moment lets it out.
        await asyncio.sleep(0.05)
        await cancel_all(*self._tasks)

    def has_link(self) -> bool:
        """True while a link carries the session's conversation."""
        return self._mux is not None and self._mux.is_up

    async def serve(self, sock: socket.socket) -> None:
        """Take a connection that leads to the session, until it ends; closes it."""
        try:
            await self._serve_link(sock.fileno(), sock.fileno())
        except (OSError, ProtocolError, asyncio.TimeoutError):
            pass
        finally:
            sock.close()

    def _accept(self) -> None:
        try:
            bridge, _ = self._listener.accept()
        except OSError as error:
            if is_exhausted(error):
                pause(self._listener, self._again)
            return
        bridge.setblocking(False)
        start(self._tasks, self._serve_bridge(bridge))

    def _again(self) -> None:
        if self._listener.fileno() >= 0:
            self.start()

    async def _serve_bridge(self, bridge: socket.socket) -> None:
        fds: List[int] = []
        try:
            if peer_uid(bridge) not in (os.getuid(), 0):
                return
            fds = await asyncio.wait_for(_receive_fds(bridge), _HELLO_TIMEOUT_S)
            if len(fds) == 2:
                await self._serve_link(fds[0], fds[1])
        except (OSError, ProtocolError, asyncio.TimeoutError):
            pass
        finally:
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
            bridge.close()

    async def _serve_link(self, read_fd_: int, write_fd_: int) -> None:
        os.set_blocking(read_fd_, False)
        os.set_blocking(write_fd_, False)
        hello, rest = await take_hello(read_fd_, write_fd_, self._server_id, _HELLO_TIMEOUT_S)
        status = self._judge(hello)
        if status in (Status.SUPERSEDED, Status.UNKNOWN):
            refusal = Hello(status, hello.client_id, self._server_id, 0, 1)
            await write_fd(write_fd_, refusal.encode())
            return
        if status is Status.FRESH:
            self._take_over(hello)
        mux = self._mux
        assert mux is not None
        answer = mux.hello(status, hello.client_id, self._server_id)
        await write_fd(write_fd_, answer.encode())
        await mux.attach(read_fd_, write_fd_, hello, rest)

    def _judge(self, hello: Hello) -> Status:
        # First: its hello may be FRESH and late, and it must not take over again.
        if hello.client_id in self._superseded:
            return Status.SUPERSEDED
        if hello.status is Status.FRESH and hello.client_id != self._client_id:
            return Status.FRESH
        if hello.client_id == self._client_id and self._mux is not None:
            return Status.RESUME
        return Status.UNKNOWN

    def _take_over(self, hello: Hello) -> None:
        old = self._mux
        if old is not None and self._client_id is not None:
            self._superseded = [*self._superseded, self._client_id][-_MAX_REMEMBERED:]
            old.end("another tk session took over this agent")
            old.detach("superseded")
        self._client_id = hello.client_id
        self._mux = self._make_mux(Endpoint(client=False))


async def _receive_fds(bridge: socket.socket) -> List[int]:
    loop = asyncio.get_running_loop()
    fds = array.array("i")
    space = socket.CMSG_SPACE(2 * fds.itemsize)
    while True:
        try:
            _, ancillary, _, _ = bridge.recvmsg(1, space)
            break
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(bridge.fileno(), _wake, ready)
            try:
                await ready
            finally:
                loop.remove_reader(bridge.fileno())
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return list(fds)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def peer_uid(sock: socket.socket) -> int:
    """The uid of the process at the other end of a unix socket."""
    if sys.platform.startswith("linux"):
        data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", data)[1])
    # Elsewhere the 0700 directory around the socket is the guard.
    return os.getuid()
