"""Reads and writes of a descriptor that wait in the running loop."""

import asyncio
import os
from typing import Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]


def take_stdio() -> Tuple[int, int]:
    """Return stdin and stdout as descriptors that nothing else uses: prints go to stderr."""
    ends = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return ends


async def read_fd(fd: int, limit_bytes: int = 64 * 1024) -> bytes:
    """Return the next bytes from a non-blocking descriptor; b"" at its end.

    A pseudo-terminal whose other side is closed reports EIO: its end.
    """
    while True:
        try:
            return os.read(fd, limit_bytes)
        except BlockingIOError:
            await _ready(fd, write=False)
        except OSError as error:
            if error.errno == 5:
                return b""
            raise


async def write_fd(fd: int, data: Buffer) -> None:
    """Write all of `data` to a non-blocking descriptor."""
    view = memoryview(data)
    while len(view):
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await _ready(fd, write=True)


async def _ready(fd: int, *, write: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = (
        (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    )
    add(fd, wake)
    try:
        await ready
    finally:
        remove(fd)
