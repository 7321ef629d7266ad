"""The exchange of hellos over descriptors: what comes first on every link."""

import asyncio
import contextlib
from typing import Optional, Tuple

from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import NO_ID, Hello, HelloReader, Status


class NoHello(ProtocolError):
    """The stream ended before a hello."""


async def exchange_hello(
    read_end: int, write_end: int, mine: Hello, reader: Optional[HelloReader] = None
) -> Tuple[Hello, bytes]:
    """Send a client's hello; return the peer's, and the bytes that came after it.

    reader: its `noise` is what came instead. Raises ProtocolError, OSError.
    """
    # A peer that is gone may have said why: the reading brings that, or the end.
    with contextlib.suppress(OSError):
        await write_fd(write_end, mine.encode())
    return await _read_hello(read_end, reader or HelloReader())


async def take_hello(
    read_end: int, write_end: int, server_id: bytes, timeout_s: float
) -> Tuple[Hello, bytes]:
    """Wait for a client's hello; return it, and the bytes that came after it.

    Another version's is answered. Raises ProtocolError, OSError, asyncio.TimeoutError.
    """
    try:
        return await asyncio.wait_for(_read_hello(read_end, HelloReader()), timeout_s)
    except NoHello:
        raise
    except ProtocolError:
        await write_fd(write_end, Hello(Status.VERSION, NO_ID, server_id, 0, 1).encode())
        raise


async def _read_hello(fd: int, reader: HelloReader) -> Tuple[Hello, bytes]:
    while True:
        data = await read_fd(fd)
        if not data:
            raise NoHello("the far end went away before its hello")
        hello = reader.feed(data)
        if hello is not None:
            return hello, reader.rest
