"""Bytes between a local socket and a channel, both ways at once, in threads.

One thread for each direction: with one for both, a peer that stops reading would hold up
what comes the other way.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial

from paramiko import Channel, SSHException

from tunnelkit.link.paramiko_link.thread_tasks import start_thread

_FROM_SOCKET_BYTES = 1 << 18
_FROM_CHANNEL_BYTES = 1 << 20
#: What a packet leaves free, so that as a whole it fits into one of the connection around it.
_ROOM_BYTES = 320
_LAST_WORDS_S = 2.0
_GONE = (OSError, EOFError, SSHException)


class BytePump:
    """Carries until both ways have ended, or `stop`; then `done` is called, in a thread.

    out: takes what comes from the far side, the socket's `sendall` by default; err: takes
    its stderr; over: called when both have ended. The socket is blocking, and the pump's to
    close.
    """

    def __init__(
        self,
        sock: socket.socket,
        channel: Channel,
        *,
        out: Callable[[bytes], object] | None = None,
        err: Callable[[bytes], object] | None = None,
        over: Callable[[], object] = lambda: None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._sock = sock
        self._channel = channel
        self._out = out or sock.sendall
        self._err = err
        self._over = over
        self._done = done
        self._threads: list[threading.Thread] = []
        self._errors_over = threading.Event()
        self._lock = threading.Lock()
        self._running = 0

    def start(self) -> None:
        """Start the threads; they end by themselves."""
        bodies = [self._up, self._down, *([self._errors] if self._err else [])]
        self._running = len(bodies)
        for body in bodies:
            self._threads.append(start_thread(body.__name__, partial(self._run, body)))

    def carry(self) -> None:
        """As `start`, with the way from the far side in the calling thread, until it ends."""
        self._running = 2
        self._threads = [threading.current_thread()]
        self._threads.append(start_thread("_up", partial(self._run, self._up)))
        self._run(self._down)
        self._threads[1].join()  # the channel is over: it has been woken

    def stop(self) -> None:
        """Cut both ways, from any thread."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(*_GONE):
            self._channel.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads' end; whether it came."""
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        finally:
            with self._lock:
                self._running -= 1
                last = self._running == 0
            if last:
                with contextlib.suppress(*_GONE):
                    self._channel.close()
                self._sock.close()
                self._done()

    def _up(self) -> None:
        buffer = bytearray(_FROM_SOCKET_BYTES)
        view = memoryview(buffer)
        try:
            while size := self._sock.recv_into(buffer):
                at = 0
                while at < size:
                    sent = self._channel.send(bytes(view[at : min(size, at + self._packet)]))
                    if sent == 0:
                        raise EOFError
                    at += sent
            self._channel.shutdown_write()
        except _GONE:
            # Nobody reads there any more: the writer here must learn it.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RD)

    @property
    def _packet(self) -> int:
        return max(1, self._channel.out_max_packet_size - _ROOM_BYTES)

    def _down(self) -> None:
        try:
            while data := self._channel.recv(_FROM_CHANNEL_BYTES):
                self._out(data)
            self._end_of_output()
            # Set by sshd's exit status, or by the channel's end: nothing is read there now.
            self._channel.status_event.wait()
            if self._err is not None:
                self._errors_over.wait(_LAST_WORDS_S)
            self._over()
        except _GONE:  # nobody reads here any more
            with contextlib.suppress(*_GONE):
                self._channel.close()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)

    def _end_of_output(self) -> None:
        if self._out == self._sock.sendall:
            self._sock.shutdown(socket.SHUT_WR)

    def _errors(self) -> None:
        assert self._err is not None
        with contextlib.suppress(*_GONE):
            while data := self._channel.recv_stderr(_FROM_CHANNEL_BYTES):
                self._err(data)
        self._errors_over.set()


class Tail:
    """The last bytes of what threads feed it."""

    def __init__(self, limit_bytes: int = 8192) -> None:
        self._limit_bytes = limit_bytes
        self._data = b""
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """Add bytes, from any thread."""
        with self._lock:
            self._data = (self._data + data)[-self._limit_bytes :]

    def text(self) -> str:
        """Return the kept bytes as text."""
        with self._lock:
            return self._data.decode("utf-8", "replace").strip()
