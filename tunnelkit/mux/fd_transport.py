"""One link's file descriptors in the event loop: bytes in by callback, buffers out by writev."""

import asyncio
import contextlib
import fcntl
import os
import sys
from typing import Callable, List, Optional

from tunnelkit.wire.frames import Buffer

#: Bytes per read. A buffer above 128 KiB costs the allocator a mapping (some 15 us), so the
#: big one is for bulk only: after a read that brought much.
_READ_BYTES = 64 * 1024
_BULK_READ_BYTES = 256 * 1024
#: The largest pipe that Linux gives to every user.
_PIPE_BYTES = 1 << 20
#: In the module fcntl from Python 3.10 on.
_F_SETPIPE_SZ = 1031
#: Buffers per writev; Linux allows 1024.
_IOV_MAX = 512
#: Reads after a failed write, at most: more than what a socket holds.
_LAST_READS = 32


def _widen(fd: int) -> None:
    """Enlarge a pipe as far as Linux allows.

    sshd keeps bytes that don't fit in a buffer, and copies all of it for each packet until the
    buffer has its full size."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # no pipe; or this user has as many as is allowed
            fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)


class FdLink:
    """Reads `read_fd` and writes `write_fd` (they may be the same socket) without blocking.

    The caller owns both descriptors. on_data(bytes): called with what arrives.
    more(): returns further buffers; called whenever the descriptor takes them.
    on_lost(reason): called once, as the last of all calls.
    """

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        on_data: Callable[[bytes], None],
        more: Callable[[], List[Buffer]],
        on_lost: Callable[[str], None],
    ) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._on_data = on_data
        self._more = more
        self._on_lost: Optional[Callable[[str], None]] = on_lost
        self._pending: List[Buffer] = []
        self._writing = False
        self._read_bytes = _READ_BYTES
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to read."""
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        _widen(self._read_fd)
        self._loop.add_reader(self._read_fd, self._readable)

    def stop(self, reason: str) -> None:
        """Stop using the descriptors and report the end. Idempotent."""
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is None:
            return
        self._loop.remove_reader(self._read_fd)
        self._loop.remove_writer(self._write_fd)
        self._pending = []
        on_lost(reason)

    def flush(self) -> None:
        """Write pending buffers, as far as the descriptor takes them now."""
        if self._on_lost is None or self._writing:
            return
        try:
            while True:
                if not self._pending:
                    self._pending = self._more()
                    if not self._pending:
                        return
                if not self._write_some():
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            # What the peer said before it went (its BYE, say) may still wait to be read.
            # Not now: our caller may be in the middle of dispatching earlier bytes.
            self._writing = True
            self._loop.call_soon(self._read_last, f"write failed: {error.strerror}")
            return
        self._writing = True
        self._loop.add_writer(self._write_fd, self._writable)

    def _write_some(self) -> bool:
        """Do one writev; return True if all pending buffers went out."""
        batch = self._pending[:_IOV_MAX]
        written = os.writev(self._write_fd, batch)
        count = 0
        for buffer in batch:
            if written < len(buffer):
                break
            written -= len(buffer)
            count += 1
        if written:
            self._pending[count] = memoryview(self._pending[count])[written:]
        del self._pending[:count]
        return not self._pending

    def _writable(self) -> None:
        self._writing = False
        self._loop.remove_writer(self._write_fd)
        self.flush()

    def _read_last(self, reason: str) -> None:
        for _ in range(_LAST_READS):
            if self._on_lost is None or not self._readable():
                break
        self.stop(reason)

    def _readable(self) -> bool:
        """Do one read; return True if it brought bytes."""
        try:
            data = os.read(self._read_fd, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.stop(f"read failed: {error.strerror}")
            return False
        if not data:
            self.stop("end of stream")
            return False
        self._read_bytes = _BULK_READ_BYTES if len(data) >= _READ_BYTES else _READ_BYTES
        self._on_data(data)
        return True
