"""Connections from processes that no loop knows.

It may be a debuggee all the same, started by another user's daemon (`docker run`). Or it only
probes the port: taken for the debuggee, it would get the next editor. So it is given time to hang
up.
"""

import asyncio
import socket
from typing import Callable, Dict, Tuple

from tunnelkit.agent.debug.rank_support import DialedProcess

_PATIENCE_S = 1.0
_ESTABLISHED = 1


class UnidentifiedPeers:
    """Holds them for a moment. admit: given those that have stayed. `close` at the end."""

    def __init__(self, admit: Callable[[socket.socket, DialedProcess], None]) -> None:
        self._admit = admit
        self._held: Dict[socket.socket, Tuple[DialedProcess, asyncio.TimerHandle]] = {}

    def hold(self, sock: socket.socket, who: DialedProcess) -> None:
        """Look again at this one, which is ours now, in a moment."""
        timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._look, sock)
        self._held[sock] = (who, timer)

    def close(self) -> None:
        """Hang up on all that are held. Idempotent."""
        for sock, (_, timer) in self._held.items():
            timer.cancel()
            sock.close()
        self._held.clear()

    def _look(self, sock: socket.socket) -> None:
        who, _ = self._held.pop(sock)
        if has_hung_up(sock):
            sock.close()
        else:
            self._admit(sock, who)


def has_hung_up(sock: socket.socket) -> bool:
    """True if the other end is gone, also where it has sent something before."""
    try:
        if sock.family == socket.AF_INET:
            return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
