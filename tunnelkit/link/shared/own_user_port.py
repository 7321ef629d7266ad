"""The local end of an ssh forward: a port that serves our own user alone.

ssh can't ask who connects to a LocalForward, so it listens at a unix socket in the link's private
directory. tk has the port, asks the kernel whose each connection is, and carries the bytes between.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from tunnelkit import local_ports
from tunnelkit.errors import UsageError
from tunnelkit.link.shared.byte_carrier import ByteCarrier
from tunnelkit.mux.listener import Listener
from tunnelkit.mux.tasks import cancel_all

#: A unix socket whose backlog is full refuses at once, so we ask again.
_CONNECT_S, _AGAIN_S = 5.0, 0.01


class OwnUserPorts:
    """All gates of one link, and every connection that they carry."""

    def __init__(self) -> None:
        self._carrier = ByteCarrier()
        self._waiting: set[asyncio.Task[None]] = set()

    def open(self, port: int, path: Path) -> OwnUserPort:
        """Listen on 127.0.0.1:`port` for ssh's socket `path`. Raises UsageError if it is taken."""
        gate = OwnUserPort(path, self)
        gate.open(port)
        return gate

    async def close(self) -> None:
        """End every connection."""
        await cancel_all(*self._waiting)
        self._carrier.close()

    def join(self, sock: socket.socket, path: str) -> None:
        """Carry that connection over ssh's socket; closes it. It is the gates' from now on."""
        far = socket.socket(socket.AF_UNIX)
        far.setblocking(False)
        try:
            far.connect(path)
        except BlockingIOError:
            task = asyncio.create_task(self._join_later(sock, far, path))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        except OSError:
            sock.close()
            far.close()
        else:
            self._carrier.carry(sock, far)

    async def _join_later(self, sock: socket.socket, far: socket.socket, path: str) -> None:
        try:
            await _connect(far, path)
        except BaseException as error:
            sock.close()
            far.close()
            if not isinstance(error, OSError):
                raise
        else:
            self._carrier.carry(sock, far)


class OwnUserPort:
    """One port. Made by `OwnUserPorts`; `close` stops listening, connections go on."""

    def __init__(self, path: Path, gates: OwnUserPorts) -> None:
        self._path = str(path)
        self._gates = gates
        self._listener = Listener(self._connected)

    def open(self, port: int) -> None:
        """Listen on 127.0.0.1:`port`. Raises UsageError if the port is taken."""
        try:
            self._listener.open(port)
        except OSError as error:
            local_ports.check_free(port)
            raise UsageError(
                f"local port {port} can't be had",
                cause=error.strerror,
                hint="choose another local port",
            ) from error

    def close(self) -> None:
        """Give the port up. Idempotent."""
        self._listener.close()

    def _connected(self, sock: socket.socket) -> None:
        self._gates.join(sock, self._path)


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
