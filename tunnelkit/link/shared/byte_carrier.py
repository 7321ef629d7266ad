"""A thread that carries bytes between pairs of sockets, and accepts those of its ports.

Every byte of an ssh forward passes here twice a round trip. A turn of asyncio's loop costs two
to three times what the thread's plain loop does, and bulk data would hold up what else it serves.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tunnelkit.mux.listener import EXHAUSTED_S, is_exhausted
from tunnelkit.mux.splice import no_delay, quick_ack

#: As much as a socket holds by default: fewer turns, 15 to 30 % less CPU than with 64 KiB.
_READ_BYTES = 256 * 1024
#: Reads a turn; then others have theirs.
_READS = 4
#: A unix socket whose backlog is full refuses at once, so it is asked again.
_REACH_S, _AGAIN_S = 5.0, 0.01
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Pair = tuple[socket.socket, socket.socket]


@dataclass(eq=False, frozen=True)
class CarriedPort:
    """A listening, non-blocking TCP socket.

    admits: returns True if the peer of that address is served.
    reach: returns a non-blocking connection to the server behind the port. Raises OSError;
        BlockingIOError: it is called again later."""

    listener: socket.socket
    admits: Callable[[tuple[str, int]], bool]
    reach: Callable[[], socket.socket]


class ByteCarrier:
    """Its thread runs from the first `carry` or `serve` to `close`."""

    def __init__(self) -> None:
        self._orders: deque[Callable[[_Work], None]] = deque()
        self._thread: threading.Thread | None = None
        self._bell: socket.socket | None = None

    def carry(self, one: socket.socket, other: socket.socket) -> None:
        """Carry bytes, half-closes and resets both ways until both have ended; then close both
        sockets, which are non-blocking and the carrier's from now on."""
        self._order(lambda work: work.join(one, other))

    def serve(self, port: CarriedPort) -> None:
        """Accept the port's connections, and carry those of admitted peers."""
        self._order(lambda work: work.watch_port(port))

    def stop(self, port: CarriedPort) -> None:
        """Close the port's listener; connections go on. Idempotent.

        Waits for the turn of the thread: afterwards, the port is free."""
        if self._bell is not None:
            done = threading.Event()
            self._order(lambda work: work.close_port(port, done))
            done.wait(_REACH_S)

    def close(self) -> None:
        """End every connection and every port. Idempotent."""
        bell, self._bell = self._bell, None
        if bell is None or self._thread is None:
            return
        bell.close()
        self._thread.join()

    def _order(self, order: Callable[[_Work], None]) -> None:
        self._orders.append(order)
        if self._bell is None:
            self._bell, heard = socket.socketpair()
            self._bell.setblocking(False)
            work = _Work(self._orders, heard)
            self._thread = threading.Thread(target=work.run, name="forwards", daemon=True)
            self._thread.start()
        else:
            # A pair that is full of bells wakes the thread, too.
            with contextlib.suppress(BlockingIOError):
                self._bell.send(b"!")


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

    def __init__(self, orders: deque[Callable[[_Work], None]], heard: socket.socket) -> None:
        self._orders = orders
        self._heard = heard
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._ends: set[_End] = set()
        self._ports: set[CarriedPort] = set()
        #: Accepted connections whose server could not be reached yet, and until when.
        self._waiting: deque[tuple[float, socket.socket, CarriedPort]] = deque()
        #: Ports that found no descriptor left, and when they are asked again.
        self._paused: dict[CarriedPort, float] = {}

    def run(self) -> None:
        self._selector.register(self._heard, _READ, None)
        try:
            self._obey()
            while self._turn():
                pass
        finally:
            self._obey()
            for end in self._ends:
                end.sock.close()
            for _, sock, _ in self._waiting:
                sock.close()
            for port in self._ports:
                port.listener.close()
            self._selector.close()
            self._heard.close()

    # -- what the owner asks for, in the thread

    def join(self, one_sock: socket.socket, other_sock: socket.socket) -> None:
        one, other = _End(one_sock), _End(other_sock)
        one.peer, other.peer = other, one
        for end in (one, other):
            self._ends.add(end)
            self._selector.register(end.sock, _READ, end)
        self._read(one)

    def watch_port(self, port: CarriedPort) -> None:
        self._ports.add(port)
        self._selector.register(port.listener, _READ, port)

    def close_port(self, port: CarriedPort, done: threading.Event) -> None:
        if port in self._ports:
            self._ports.discard(port)
            if self._paused.pop(port, None) is None:
                self._selector.unregister(port.listener)
            port.listener.close()
        done.set()

    # -- turns

    def _turn(self) -> bool:
        for key, events in self._selector.select(self._patience_s()):
            what: _End | CarriedPort | None = key.data
            if isinstance(what, _End):
                if what in self._ends:
                    if events & _WRITE:
                        self._flush(what)
                    if events & _READ and what.reads:
                        self._read(what)
            elif what is None:
                if not self._heard.recv(64):
                    return False
                self._obey()
            elif what in self._ports:
                self._accept(what)
        for _ in range(len(self._waiting)):
            self._reach(*self._waiting.popleft())
        for port in [one for one, until in self._paused.items() if until <= time.monotonic()]:
            del self._paused[port]
            self._selector.register(port.listener, _READ, port)
        return True

    def _patience_s(self) -> float | None:
        if self._waiting:
            return _AGAIN_S
        return max(0.0, min(self._paused.values()) - time.monotonic()) if self._paused else None

    def _obey(self) -> None:
        while self._orders:
            self._orders.popleft()(self)

    # -- new connections

    def _accept(self, port: CarriedPort) -> None:
        try:
            sock, address = port.listener.accept()
        except OSError as error:
            if is_exhausted(error):
                self._selector.unregister(port.listener)
                self._paused[port] = time.monotonic() + EXHAUSTED_S
            return
        try:
            admitted = port.admits(address)
            sock.setblocking(False)
            no_delay(sock)
            quick_ack(sock)
        except OSError:
            admitted = False
        if admitted:
            self._reach(time.monotonic() + _REACH_S, sock, port)
        else:
            sock.close()

    def _reach(self, until: float, sock: socket.socket, port: CarriedPort) -> None:
        try:
            far = port.reach()
        except OSError as error:
            if isinstance(error, BlockingIOError) and time.monotonic() < until:
                self._waiting.append((until, sock, port))
            else:
                sock.close()
        else:
            self.join(sock, far)

    # -- bytes

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
