"""Join a TCP or unix socket and a channel: bytes, half-closes and ends both ways."""

import asyncio
import contextlib
import socket
import struct
from typing import Optional

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.waiting import cancel_all, first_of

#: One DATA frame's worth. A buffer above 128 KiB would cost a mapping at every read.
_READ_BYTES = 64 * 1024
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
    if _QUICKACK is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


def _reset_on_close(sock: socket.socket) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def splice(sock: socket.socket, channel: Channel, *, quickack: bool = False) -> None:
    """Carry bytes between `sock` (non-blocking) and `channel` until both directions ended.

    Closes both. A reset on one side becomes a reset on the other.
    """
    no_delay(sock)
    if quickack:
        quick_ack(sock)
    up = asyncio.ensure_future(_socket_to_channel(sock, channel, quickack))
    down = asyncio.ensure_future(_channel_to_socket(sock, channel))
    over = asyncio.ensure_future(channel.closed())
    try:
        both = asyncio.gather(up, down)
        await first_of(both, over)
        if over.done() and not down.done():
            # What had arrived before the peer's close still goes to the socket.
            await asyncio.wait({down})
        if both.done():
            both.exception()
        else:
            both.cancel()
    finally:
        await cancel_all(up, down, over)
        if not channel.is_over:
            channel.close()
        sock.close()


async def _socket_to_channel(sock: socket.socket, channel: Channel, quickack: bool) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            data = await loop.sock_recv(sock, _READ_BYTES)
            if not data:
                break
            if quickack:
                quick_ack(sock)
            await channel.write(data)
    except OSError:
        channel.abort({"error": "connection reset"})
        return
    channel.write_eof()


async def _channel_to_socket(sock: socket.socket, channel: Channel) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            data = await channel.read()
            if not data:
                break
            await loop.sock_sendall(sock, data)
        if channel.is_over and (await channel.closed() or {}).get("error"):
            # A stream that broke must not look like one that is complete.
            _reset_on_close(sock)
            return
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        channel.abort({"error": "connection reset"})
