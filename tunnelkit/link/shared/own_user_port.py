"""The local end of an ssh forward: a port that serves our own user alone.

ssh can't ask who connects to a LocalForward, so it listens at a unix socket in the link's private
directory. tk has the port, asks the kernel whose each connection is, and carries the bytes between.
"""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

from tunnelkit import local_ports
from tunnelkit.errors import UsageError
from tunnelkit.link.shared.byte_carrier import ByteCarrier, CarriedPort
from tunnelkit.mux.peer_credentials import same_user

_BACKLOG = 128


class OwnUserPorts:
    """All gates of one link, and every connection that they carry."""

    def __init__(self) -> None:
        self._carrier = ByteCarrier()

    def open(self, port: int, path: Path) -> OwnUserPort:
        """Listen on 127.0.0.1:`port` for ssh's socket `path`. Raises UsageError if it is taken."""
        own = ("127.0.0.1", port)
        try:
            listener = socket.create_server(own, backlog=_BACKLOG)
        except OSError as error:
            local_ports.check_free(port)
            raise UsageError(
                f"local port {port} can't be opened",
                cause=error.strerror,
                hint="choose another local port",
            ) from error
        listener.setblocking(False)
        carried = CarriedPort(listener, partial(same_user, own=own), partial(_connect, str(path)))
        self._carrier.serve(carried)
        return OwnUserPort(carried, self._carrier)

    async def close(self) -> None:
        """End every connection, and every port."""
        self._carrier.close()


class OwnUserPort:
    """One port. Made by `OwnUserPorts`; `close` stops listening, connections go on."""

    def __init__(self, port: CarriedPort, carrier: ByteCarrier) -> None:
        self._port = port
        self._carrier = carrier

    def close(self) -> None:
        """Give the port up. Idempotent."""
        self._carrier.stop(self._port)


def _connect(path: str) -> socket.socket:
    """Connect to ssh's socket. Raises OSError; BlockingIOError while its backlog is full."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock
