"""A listening socket that serves processes of its own user."""

import asyncio
import errno
import os
import socket
from typing import Callable, Optional

from tunnelkit.mux.peer_credentials import same_user
from tunnelkit.mux.splice import no_delay, quick_ack

_BACKLOG = 128
#: The process or the machine has no descriptor or memory left: the peer goes on waiting.
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
#: How long a listener then waits. Asked at once, it would take all of a core.
EXHAUSTED_S = 1.0


def is_exhausted(error: OSError) -> bool:
    """True if `accept` failed for want of descriptors or memory."""
    return error.errno in _EXHAUSTED


def pause(listener: socket.socket, again: Callable[[], None]) -> None:
    """Stop to accept for a while, then call `again`, which goes on if that is still wanted."""
    loop = asyncio.get_running_loop()
    loop.remove_reader(listener.fileno())
    loop.call_later(EXHAUSTED_S, again)


class Listener:
    """Hands each new connection, non-blocking, to `on_peer`. `open` or `open_unix`, then `close`.

    on_peer: called with the socket, which it then owns unless it raises.
    shared: peers of other uids are served too.
    refused: number of peers of another uid whose connection was closed.
    """

    def __init__(
        self,
        on_peer: Callable[[socket.socket], object],
        *,
        backlog: int = _BACKLOG,
        shared: bool = False,
    ) -> None:
        self._on_peer = on_peer
        self._backlog = backlog
        self._shared = shared
        self._socket: Optional[socket.socket] = None
        self.port = 0
        self.refused = 0

    def open(self, port: int = 0) -> None:
        """Listen on 127.0.0.1:`port` (0: any free port; see `port`); peers of our uid only.

        Raises OSError, EADDRINUSE among them.
        """
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if port:
                # Connections of the port's last holder may linger. A port that the kernel
                # chooses must be free of them.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
            self._listen(sock)
        except BaseException:
            sock.close()
            raise
        self.port = sock.getsockname()[1]

    def open_unix(self, path: str) -> None:
        """Listen on a unix socket 0600, which the caller removes.

        Its mode and its directory decide who may connect. Raises OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Not chmod after: others could connect in between.
            umask = os.umask(0o177)
            try:
                sock.bind(path)
            finally:
                os.umask(umask)
            self._listen(sock)
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Stop listening; connections stay. Idempotent."""
        sock, self._socket = self._socket, None
        if sock is not None:
            asyncio.get_running_loop().remove_reader(sock.fileno())
            sock.close()

    def _listen(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.listen(self._backlog)
        asyncio.get_running_loop().add_reader(sock.fileno(), self._accept, sock)
        self._socket = sock

    def _accept(self, listener: socket.socket) -> None:
        try:
            peer, address = listener.accept()
        except OSError as error:
            if is_exhausted(error):
                self._pause(listener)
            return
        try:
            anybody = self._shared or listener.family != socket.AF_INET
            if not anybody and not same_user(address, peer.getsockname()):
                self.refused += 1
                peer.close()
                return
            peer.setblocking(False)
            no_delay(peer)
            quick_ack(peer)
            self._on_peer(peer)
        except BaseException:
            peer.close()
            raise

    def _pause(self, listener: socket.socket) -> None:
        def again() -> None:
            if self._socket is listener:
                asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)

        pause(listener, again)
