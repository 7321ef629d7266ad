"""Join a TCP or unix socket and a channel: bytes, half-closes and ends both ways."""

import asyncio
import contextlib
import socket
import struct
from typing import Callable, Optional, Union

from tunnelkit.mux.channel import Channel

#: One DATA frame's worth. A buffer above 128 KiB would cost a mapping at every read.
_READ_BYTES = 64 * 1024
#: Reads a turn, while each brings a full buffer; then others have theirs.
_READS = 4
# Linux only; absent elsewhere, where delayed ACKs are shorter.
_QUICKACK: Optional[int] = getattr(socket, "TCP_QUICKACK", None)


def no_delay(sock: socket.socket) -> None:
    """Send small writes at once: debug adapters write header and body apart (debugpy #2054)."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def quick_ack(sock: socket.socket) -> None:
    """Acknowledge at once what was just read, so that a peer with Nagle on never waits.

    The kernel forgets the setting, so it is renewed after each read.
    """
    if _QUICKACK is not None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        except OSError:
            pass  # not TCP; to ask for its family first takes longer


def _reset_on_close(sock: socket.socket) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def splice(
    sock: socket.socket,
    channel: Channel,
    *,
    quickack: bool = False,
    together: bool = False,
    inbound: Callable[[bytes], bytes] = bytes,
    outbound: Callable[[bytes], bytes] = bytes,
    replies: Optional[Callable[[], bytes]] = None,
) -> None:
    """Carry bytes between `sock` (non-blocking) and `channel` until both directions ended.

    Closes both. A reset on one side becomes a reset on the other.
    together: small pieces go with those of other channels (`Channel.write_soon`): for the
    connections of many ranks, which answer at once.
    inbound, outbound: called with each piece for the socket, and for the channel; they return
    what goes on. An OSError that they raise ends the splice. replies: called after `outbound`, and
    returns what the socket gets at once.
    """
    no_delay(sock)
    if quickack:
        quick_ack(sock)
    spliced = _Splice(sock, channel, quickack, together, inbound, outbound, replies)
    try:
        spliced.start()
        await spliced.done
    finally:
        spliced.stop()
        if not channel.is_over:
            channel.close()
        sock.close()


class _Splice:
    """One splice by callbacks: bytes go on within the event that brought them.

    `done` is set once nothing more can be carried.
    """

    def __init__(
        self,
        sock: socket.socket,
        channel: Channel,
        quickack: bool,
        together: bool,
        inbound: Callable[[bytes], bytes],
        outbound: Callable[[bytes], bytes],
        replies: Optional[Callable[[], bytes]],
    ) -> None:
        self._sock = sock
        self._channel = channel
        self._quickack = quickack
        self._write = channel.write_soon if together else channel.write_nowait
        self._inbound = inbound
        self._outbound = outbound
        self._replies = replies
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._up_ended = False
        self._down_ended = False
        self._reading = False
        self._writing = False
        self._unsent: Union[bytes, memoryview] = b""

    def start(self) -> None:
        """Begin in both directions, with what is there already."""
        self._channel.watch(self._to_socket, self._read)
        self._read()
        self._to_socket()

    def stop(self) -> None:
        """Stop using socket and channel. Idempotent."""
        self._channel.watch(None, None)
        self._pause()
        self._loop.remove_writer(self._sock)
        if not self.done.done():
            self.done.set_result(None)

    # -- from the socket to the channel

    def _read(self) -> None:
        if not (self._reading or self._up_ended or self.done.done()):
            self._reading = True
            self._loop.add_reader(self._sock, self._from_socket)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock)

    def _from_socket(self) -> None:
        for _ in range(_READS):
            try:
                data = self._sock.recv(_READ_BYTES)
                piece = self._outbound(data)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._broken()
                return
            if self._quickack:
                quick_ack(self._sock)
            if not data:
                self._up_ended = True
                self._pause()
                self._channel.write_eof()
                self._check()
                return
            if piece:
                self._write(piece)
            if self._replies is not None:
                self._to_socket()
            if self._channel.is_full():
                self._pause()
                return
            if len(data) < _READ_BYTES:
                return

    # -- from the channel to the socket

    def _to_socket(self) -> None:
        if self._writing or self._down_ended or self.done.done():
            self._check()
            return
        try:
            while self._unsent or self._next():
                count = self._sock.send(self._unsent)
                self._unsent = memoryview(self._unsent)[count:]
        except (BlockingIOError, InterruptedError):
            self._writing = True
            self._loop.add_writer(self._sock, self._writable)
            return
        except OSError:
            self._broken()
            return
        if self._channel.at_eof:
            self._end_down()
        self._check()

    def _next(self) -> bool:
        while piece := self._channel.take():
            self._unsent = self._inbound(piece)
            if self._unsent:
                return True
        self._unsent = self._replies() if self._replies is not None else b""
        return bool(self._unsent)

    def _writable(self) -> None:
        self._writing = False
        self._loop.remove_writer(self._sock)
        self._to_socket()

    def _end_down(self) -> None:
        self._down_ended = True
        if self._channel.last_word_is_error:
            # A stream that broke must not look like one that is complete.
            _reset_on_close(self._sock)
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    # -- both

    def _broken(self) -> None:
        self._down_ended = self._up_ended = True
        self._channel.abort({"error": "connection reset"})
        self._check()

    def _check(self) -> None:
        """Set `done` if both directions are over, or the peer has closed and all it sent is out."""
        over = self._up_ended or self._channel.is_over
        if over and self._down_ended and not self.done.done():
            self.done.set_result(None)
