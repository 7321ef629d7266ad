"""A thread that carries bytes between pairs of sockets.

Every byte of an ssh forward passes here twice a round trip. A turn of asyncio's loop costs two
to three times what the thread's plain loop does, and bulk data would hold up what else it serves.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field

_READ_BYTES = 64 * 1024
#: Reads a turn; then others have theirs.
_READS = 4
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class ByteCarrier:
    """Its thread runs from the first `carry` to `close`."""

    def __init__(self) -> None:
        self._new: deque[tuple[socket.socket, socket.socket]] = deque()
        self._thread: threading.Thread | None = None
        self._bell: socket.socket | None = None

    def carry(self, one: socket.socket, other: socket.socket) -> None:
        """Carry bytes, half-closes and resets both ways until both have ended; then close both
        sockets, which are non-blocking and the carrier's from now on."""
        self._new.append((one, other))
        if self._bell is None:
            self._bell, heard = socket.socketpair()
            self._bell.setblocking(False)
            work = _Work(self._new, heard)
            self._thread = threading.Thread(target=work.run, name="forwards", daemon=True)
            self._thread.start()
        else:
            # A pair that is full of bells wakes the thread, too.
            with contextlib.suppress(BlockingIOError):
                self._bell.send(b"!")

    def close(self) -> None:
        """End every connection. Idempotent."""
        bell, self._bell = self._bell, None
        if bell is None or self._thread is None:
            return
        bell.close()
        self._thread.join()


@dataclass(eq=False)
class _End:
    """One socket of a pair. unsent: what came for it and it has not taken yet."""

    sock: socket.socket
    peer: _End = field(init=False)
    reads: bool = True
    ended: bool = False
    unsent: bytes = b""

    @property
    def events(self) -> int:
        return (_READ if self.reads else 0) | (_WRITE if self.unsent else 0)


class _Work:
    """The thread's work. Ends, and closes all, once the other end of `heard` is closed."""

    def __init__(
        self, new: deque[tuple[socket.socket, socket.socket]], heard: socket.socket
    ) -> None:
        self._new = new
        self._heard = heard
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._ends: set[_End] = set()

    def run(self) -> None:
        self._selector.register(self._heard, _READ, None)
        try:
            self._take()
            while self._turn():
                pass
        finally:
            for end in self._ends:
                end.sock.close()
            for pair in self._new:
                for sock in pair:
                    sock.close()
            self._selector.close()
            self._heard.close()

    def _turn(self) -> bool:
        for key, events in self._selector.select():
            end: _End | None = key.data
            if end is None:
                if not self._heard.recv(64):
                    return False
                self._take()
            elif end in self._ends:
                if events & _WRITE:
                    self._flush(end)
                if events & _READ and end.reads:
                    self._read(end)
        return True

    def _take(self) -> None:
        while self._new:
            one, other = (_End(sock) for sock in self._new.popleft())
            one.peer, other.peer = other, one
            for end in (one, other):
                self._ends.add(end)
                self._selector.register(end.sock, _READ, end)
            self._read(one)

    def _read(self, end: _End) -> None:
        for _ in range(_READS):
            try:
                count = end.sock.recv_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._reset(end)
                return
            if not count:
                with contextlib.suppress(OSError):
                    end.peer.sock.shutdown(socket.SHUT_WR)
                self._over(end)
                return
            if not self._send(end.peer, self._view[:count]):
                return
            if count < _READ_BYTES:
                return

    def _send(self, sink: _End, data: memoryview) -> bool:
        """Send what the sink takes now.

        True if all is out; the rest is sent once the sink takes more.
        """
        source = sink.peer
        try:
            while data:
                data = data[sink.sock.send(data) :]
        except (BlockingIOError, InterruptedError):
            sink.unsent, source.reads = bytes(data), False
            self._watch(sink)
            self._watch(source)
            return False
        except OSError:
            # Nobody reads there any more: who writes here is to learn it.
            with contextlib.suppress(OSError):
                source.sock.shutdown(socket.SHUT_RD)
            sink.unsent = b""
            self._over(source)
            return False
        return True

    def _flush(self, sink: _End) -> None:
        data, sink.unsent = sink.unsent, b""
        if self._send(sink, memoryview(data)):
            sink.peer.reads = not sink.peer.ended
            self._watch(sink)
            self._watch(sink.peer)

    def _watch(self, end: _End) -> None:
        """Ask for the events that this end waits for now."""
        if end not in self._ends:
            return
        known = end.sock in self._selector.get_map()
        if not end.events:
            if known:
                self._selector.unregister(end.sock)
        elif known:
            self._selector.modify(end.sock, end.events, end)
        else:
            self._selector.register(end.sock, end.events, end)

    def _over(self, end: _End) -> None:
        """Nothing more comes from that end."""
        end.reads, end.ended = False, True
        if end.peer.ended:
            self._drop(end)
        else:
            self._watch(end)
            self._watch(end.peer)

    def _reset(self, end: _End) -> None:
        """A reset on one side is one on the other."""
        peer = end.peer.sock
        if peer.family == socket.AF_INET:
            with contextlib.suppress(OSError):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._drop(end)

    def _drop(self, end: _End) -> None:
        for one in (end, end.peer):
            with contextlib.suppress(KeyError):
                self._selector.unregister(one.sock)
            self._ends.discard(one)
            one.sock.close()
