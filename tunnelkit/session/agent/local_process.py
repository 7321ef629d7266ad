"""Stream to a process on the local machine: for `tk loop` on a node, and for tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence

from tunnelkit.child_process import Lines, spawn


class LocalStream:
    """A local child process as a `link.base.ByteStream`."""

    def __init__(
        self, process: asyncio.subprocess.Process, sock: socket.socket, errors: socket.socket
    ) -> None:
        self._process = process
        self._sock = sock
        self._lines = Lines()
        self._reader = asyncio.create_task(self._read(errors))

    def fileno(self) -> int:
        """See `ByteStream.fileno`."""
        return self._sock.fileno()

    async def wait(self) -> int:
        """See `ByteStream.wait`."""
        status = await self._process.wait()
        await self._reader
        return status

    def diagnosis(self) -> str:
        """See `ByteStream.diagnosis`."""
        return self._lines.text()

    async def close(self) -> None:
        """See `ByteStream.close`."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._sock.close()

    async def _read(self, errors: socket.socket) -> None:
        try:
            while data := await asyncio.get_running_loop().sock_recv(errors, 4096):
                self._lines.feed(data)
        finally:
            errors.close()


async def open_local_stream(argv: Sequence[str]) -> LocalStream:
    """Start `argv` on this machine and return its stdin and stdout as a stream."""
    ours, theirs = socket.socketpair()
    out = theirs.dup()
    errors, errors_theirs = socket.socketpair()
    for sock in (ours, errors):
        sock.setblocking(False)
    try:
        process = await spawn(argv, stdin=theirs, stdout=out, stderr=errors_theirs)
    except BaseException:
        ours.close()
        errors.close()
        raise
    return LocalStream(process, ours, errors)
