"""The kernel's queue of file events: what inotify(7) says, and no more."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _EXCL_UNLINK = 0x1000000, 0x2000000, 0x4000000
ISDIR = 0x40000000
_MASK = (
    (MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE)
    | (DELETE_SELF | MOVE_SELF)
    | (_ONLYDIR | _DONT_FOLLOW | _EXCL_UNLINK)
)
_HEAD = struct.Struct("iIII")  # watch descriptor, mask, cookie, length of the name
_READ_BYTES = 64 << 10


class RawEvent(NamedTuple):
    """One event as the kernel tells it. name: within the watched directory; b"": itself."""

    watch: int
    mask: int
    cookie: int
    name: bytes


class InotifyQueue:
    """One queue. `open`, then `close`; `watch` and `forget` in any thread meanwhile."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = -1

    def open(self) -> None:
        """Open the queue. Raises OSError if there are too many queues."""
        fd = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if fd < 0:
            raise _error()
        self.fd = fd

    def close(self) -> None:
        """Close the queue. Idempotent. Takes a while if there are thousands of watches."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def watch(self, directory: str) -> int:
        """Watch a directory, and return the watch's number: the old one, if it has one.

        Raises OSError if it is gone, not readable or no directory, or if a limit is reached.
        """
        name = os.fsencode(directory)
        watch = int(self._libc.inotify_add_watch(self.fd, name, ctypes.c_uint32(_MASK)))
        if watch < 0:
            raise _error()
        return watch

    def forget(self, watch: int) -> None:
        """Remove a watch; it may be gone already."""
        self._libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> tuple[list[RawEvent], bool]:
        """Return the waiting events, and True if there may be more. Raises OSError."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return [], False
        return list(_cut(data)), len(data) > _READ_BYTES // 2


def _cut(data: bytes) -> Iterator[RawEvent]:
    """Yield the events of one read.

    A modification is left out if the next event is a close or another modification of that file: a
    save makes several.
    """
    position = 0
    last: RawEvent | None = None
    while position < len(data):
        watch, mask, mark, size = _HEAD.unpack_from(data, position)
        position += _HEAD.size + size
        heard = RawEvent(watch, mask, mark, data[position - size : position].rstrip(b"\0"))
        if last is not None and not (
            last.mask == MODIFY
            and heard.mask in (MODIFY, CLOSE_WRITE)
            and (last.watch, last.name) == (watch, heard.name)
        ):
            yield last
        last = heard
    if last is not None:
        yield last


def _error() -> OSError:
    number = ctypes.get_errno() or errno.EIO
    return OSError(number, os.strerror(number))
