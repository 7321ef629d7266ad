"""The wait status of processes that are other processes' children.

Since Linux 6.15 a pidfd tells it, also after the parent has taken it (PIDFD_GET_INFO). Before, only
the parent knows, and a zombie's /proc/PID/stat while there is one.
"""

import fcntl
import os
import struct
from typing import Callable, Dict, Optional

from tunnelkit.probe.processes import Key

_GET_INFO = 0xC040FF0B
_EXIT = 1 << 3
_SIZE, _CODE_AT = 64, 60
_MOST = 256


class WaitStatuses:
    """Holds a pidfd of each process, until it is asked for its end. `close` ends it."""

    def __init__(self) -> None:
        self._open: Dict[Key, int] = {}
        # Python 3.8 lacks it.
        self._pidfd_open: Optional[Callable[[int], int]] = getattr(os, "pidfd_open", None)

    def watch(self, key: Key) -> None:
        """Take a pidfd of a process, if this system has them."""
        if self._pidfd_open is None or key in self._open or len(self._open) >= _MOST:
            return
        try:
            fd = self._pidfd_open(key[0])
        except OSError:
            return
        if _ask(fd) is None:
            os.close(fd)
            self._pidfd_open = None
            return
        self._open[key] = fd

    def take(self, key: Key) -> Optional[int]:
        """Return the wait status of a process that has ended; None if it is not known."""
        fd = self._open.pop(key, None)
        if fd is None:
            return None
        try:
            info = _ask(fd)
        finally:
            os.close(fd)
        if info is None or not struct.unpack_from("Q", info)[0] & _EXIT:
            return None
        return int(struct.unpack_from("i", info, _CODE_AT)[0])

    def close(self) -> None:
        """Close all pidfds."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()


def _ask(fd: int) -> Optional[bytearray]:
    """Return what the kernel says; None if it knows no such request."""
    info = bytearray(_SIZE)
    struct.pack_into("Q", info, 0, _EXIT)
    try:
        fcntl.ioctl(fd, _GET_INFO, info)
    except ProcessLookupError:
        return bytearray(_SIZE)
    except OSError:
        return None
    return info
