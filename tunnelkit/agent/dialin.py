"""The one listening port of a loop: debuggees dial in here, from this node and this user only.

The port is held for as long as the loop lives, so nobody can put a fake adapter
in its place, and it never offers anything to whoever connects: a debuggee talks
to it, it does not talk to a debuggee's port.
"""

import socket
from typing import Callable

from tunnelkit.mux.listener import Listener

#: All ranks of a node may dial in at once.
_BACKLOG = 256


class DialIn:
    """127.0.0.1:`port`, accepting peers of our own uid."""

    def __init__(self, on_peer: Callable[[socket.socket], None]) -> None:
        self._listener = Listener(on_peer, backlog=_BACKLOG)

    def open(self) -> None:
        """Bind and listen."""
        self._listener.open()

    def close(self) -> None:
        """Give the port up."""
        self._listener.close()

    @property
    def port(self) -> int:
        """The port, once open."""
        return self._listener.port

    @property
    def refused(self) -> int:
        """How many peers were of another user."""
        return self._listener.refused
