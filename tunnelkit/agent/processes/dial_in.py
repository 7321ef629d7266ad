"""The one listening port of a loop: debuggees dial in here, from this node and this user only.

The port is held for as long as the agent lives, so nobody can put a fake adapter in its place: what
outlives its loop may dial it at any time. It never offers anything to its peers: a debuggee talks
to it, it does not talk to a debuggee's port.
"""

import asyncio
import socket
from typing import Callable, List

from tunnelkit.mux.dap_framing import encode
from tunnelkit.mux.listener import Listener

#: All ranks of a node may dial in at once.
_BACKLOG = 256
#: Each is a descriptor, of which a process may have 1,024.
_HELD_PORTS = 200
_LET_RUN_S = 10.0
#: What an editor would send that lets a program run and leaves.
_LET_RUN = b"".join(
    encode({"seq": at, "type": "request", "command": command, "arguments": arguments})
    for at, (command, arguments) in enumerate(
        (
            ("initialize", {"adapterID": "tunnelkit"}),
            ("attach", {}),
            ("configurationDone", {}),
            ("disconnect", {}),
        ),
        start=1,
    )
)


class DialIn:
    """127.0.0.1:`port`, accepting peers of our own uid."""

    def __init__(self, on_peer: Callable[[socket.socket], None]) -> None:
        self._on_peer = on_peer
        self._listener = Listener(lambda sock: self._on_peer(sock), backlog=_BACKLOG)

    def open(self) -> None:
        """Bind and listen."""
        self._listener.open()

    def retire(self) -> None:
        """Keep the port, and hang up on every peer."""
        self._on_peer = _hang_up

    def close(self) -> None:
        """Give the port up."""
        self._listener.close()

    @property
    def port(self) -> int:
        """The port, once open."""
        return self._listener.port

    @property
    def refused(self) -> int:
        """The number of refused peers of other users."""
        return self._listener.refused


def _hang_up(sock: socket.socket) -> None:
    sock.close()


def let_run(sock: socket.socket) -> None:
    """Answer a debuggee that nobody will debug, so that it runs: hung up on, it would wait without
    end. sock: closed once it has hung up itself, or after `_LET_RUN_S`."""
    loop = asyncio.get_running_loop()

    def close() -> None:
        too_long.cancel()
        loop.remove_reader(sock.fileno())
        sock.close()

    def read() -> None:
        try:
            ended = not sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            close()

    too_long = loop.call_later(_LET_RUN_S, close)
    loop.add_reader(sock.fileno(), read)
    try:
        sock.send(_LET_RUN)
    except OSError:
        close()


class HeldPorts:
    """Ports of loops that are over. `close` gives them up."""

    def __init__(self) -> None:
        self._held: List[DialIn] = []

    def add(self, dialin: DialIn) -> None:
        """Keep this port; of too many the oldest is given up."""
        dialin.retire()
        self._held.append(dialin)
        if len(self._held) > _HELD_PORTS:
            self._held.pop(0).close()

    def close(self) -> None:
        """Give all up. Idempotent."""
        for dialin in self._held:
            dialin.close()
        self._held.clear()
