"""The one listening port of a loop: debuggees dial in here, from this node and this user only.

The port is held for as long as the loop lives, so nobody can put a fake adapter
in its place, and it never offers anything to whoever connects: a debuggee talks
to it, it does not talk to a debuggee's port.
"""

import asyncio
import socket
from typing import Callable, Optional

from tunnelkit.mux.peers import same_user

_BACKLOG = 256


class DialIn:
    """127.0.0.1:`port`, accepting peers of our own uid."""

    def __init__(self, on_peer: Callable[[socket.socket], None]) -> None:
        self._on_peer = on_peer
        self._listener: Optional[socket.socket] = None
        self.port = 0
        self.refused = 0

    def open(self) -> None:
        """Bind and listen."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen(_BACKLOG)
        self._listener = listener
        self.port = listener.getsockname()[1]
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Give the port up."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, address = self._listener.accept()
        except OSError:
            return
        if not same_user(address, sock.getsockname()):
            self.refused += 1
            sock.close()
            return
        sock.setblocking(False)
        self._on_peer(sock)
