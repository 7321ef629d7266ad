"""Lends sessions of a link to rsync, sshfs and the like: the other end of ssh_shim.py.

A unix socket, 0600, in the link's 0700 directory. A client says which node and command,
then sends its stdin; it gets frames of stdout and stderr, and last the exit status.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from tunnelkit.errors import TunnelkitError
from tunnelkit.link.paramiko_link import ssh_shim
from tunnelkit.link.paramiko_link.ssh_shim import EXIT, HEADER, STDERR, STDOUT

_REQUEST_BYTES = 1 << 20
_BACKLOG = 16


class ShimCommand(Protocol):
    """The byte stream between a client and its command."""

    def stop(self) -> None:
        """Cut both directions, from any thread."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of its threads; False if it did not come in time."""
        ...


class Client:
    """One lentshell. `out` and `err` are for the carrier's threads."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._lock = threading.Lock()

    def out(self, data: bytes) -> None:
        """Send a piece of stdout. Raises OSError if the client is gone."""
        self._frame(STDOUT, data)

    def err(self, data: bytes) -> None:
        """Send a piece of stderr. Raises OSError if the client is gone."""
        self._frame(STDERR, data)

    def exit(self, code: int) -> None:
        """Send the exit status, as the last frame."""
        with contextlib.suppress(OSError), self._lock:
            self.sock.sendall(HEADER.pack(EXIT, code))

    def _frame(self, kind: int, data: bytes) -> None:
        with self._lock:
            self.sock.sendall(HEADER.pack(kind, len(data)) + data)


#: Starts a command for a client: node, command, whether it is a subsystem; what carries it.
Start = Callable[[Client, str | None, str, bool, Callable[[], None]], Awaitable[ShimCommand]]


class SshShimServer:
    """Owns the socket and all clients. `start` runs what they ask for."""

    def __init__(self, path: Path, start: Start) -> None:
        self._path = path
        self._start = start
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def shell(self, node: str | None) -> list[str]:
        """argv of the ssh-like program, without a host."""
        return [sys.executable, "-I", "-S", ssh_shim.__file__, str(self._path), node or ""]

    def is_left_behind(self) -> bool:
        """True if a killed predecessor has left its socket, and no other process serves it."""
        return self._listener is None and self._path.is_socket()

    def open(self) -> None:
        """Listen. Idempotent."""
        if self._listener is not None:
            return
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            self._listener.bind(str(self._path))
        finally:
            os.umask(mask)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def close(self) -> None:
        """Stop listening, and end all clients. Idempotent."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            self._path.unlink(missing_ok=True)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            task = asyncio.get_running_loop().create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        loop, client = asyncio.get_running_loop(), Client(sock)
        carrier: ShimCommand | None = None
        done = asyncio.Event()

        def finished() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

        try:
            request = await _request(sock)
            sock.setblocking(True)
            node = None if request["node"] is None else str(request["node"])
            command, subsystem = str(request["command"]), bool(request["subsystem"])
            carrier = await self._start(client, node, command, subsystem, finished)
            await done.wait()
        except TunnelkitError as error:
            sock.setblocking(True)
            with contextlib.suppress(OSError):
                client.err(f"{error.one_line()}\n".encode())
            client.exit(255)
        except (OSError, ValueError, KeyError):
            pass  # not one of these, or gone
        finally:
            if carrier is not None:
                carrier.stop()
                await asyncio.to_thread(carrier.join, 2.0)
            sock.close()


async def _request(sock: socket.socket) -> dict[str, object]:
    """The first line, read byte by byte at its end: what follows is stdin."""
    loop, data = asyncio.get_running_loop(), bytearray()
    while not data.endswith(b"\n"):
        peeked = await _peek(loop, sock)
        end = peeked.find(b"\n") + 1 or len(peeked)
        data += sock.recv(end)
        if not peeked or len(data) > _REQUEST_BYTES:
            raise ValueError("no request")
    request = json.loads(data)
    if not isinstance(request, dict):
        raise ValueError("no request")
    return request


async def _peek(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
    readable = asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sock)
    return sock.recv(1 << 16, socket.MSG_PEEK)
