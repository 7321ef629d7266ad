"""Two Muxes in one event loop, joined by real socketpairs that can be cut."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.handshake import NO_ID, Hello, Status

DEADLINE_S = 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; fail after DEADLINE_S."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.001)


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, DEADLINE_S)


def hello_of(mux: Mux) -> Hello:
    return Hello(Status.RESUME, NO_ID, NO_ID, mux.endpoint.received, mux.endpoint.window_bytes)


class End:
    """One Mux with what happened to it, and tasks that serve the channels it is given."""

    def __init__(self, *, client: bool, window_bytes: int) -> None:
        self.mux = Mux(
            Endpoint(client=client, window_bytes=window_bytes), self._opened, self._ended
        )
        self.ended: list[str] = []
        self.channels: list[Channel] = []
        self.headers: list[dict[str, Any]] = []
        self.serve: Callable[[Channel, dict[str, Any]], None] = lambda channel, header: None

    def _ended(self, reason: str) -> None:
        self.ended.append(reason)

    def _opened(self, channel: Channel, header: dict[str, Any]) -> None:
        self.channels.append(channel)
        self.headers.append(header)
        self.serve(channel, header)


class Ends:
    """Client and server end; `link` joins them, `cut` loses what is in flight."""

    def __init__(self, window_bytes: int) -> None:
        self.client = End(client=True, window_bytes=window_bytes)
        self.server = End(client=False, window_bytes=window_bytes)
        self.sockets: list[socket.socket] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.links = 0

    def link(self) -> tuple[asyncio.Future[str], asyncio.Future[str]]:
        """A new link; an old one is cut first. Returns both ends' `lost`."""
        self.cut()
        ours, theirs = socket.socketpair()
        self.sockets = [ours, theirs]
        self.links += 1
        client, server = self.client.mux, self.server.mux
        to_client, to_server = hello_of(server), hello_of(client)
        return (
            client.attach(ours.fileno(), ours.fileno(), to_client),
            server.attach(theirs.fileno(), theirs.fileno(), to_server),
        )

    def cut(self) -> None:
        """Both ends at once, with the bytes in the sockets."""
        for end in (self.client, self.server):
            end.mux.detach("cut")
        self._close()

    async def cut_at_client(self) -> None:
        """The client's end dies; the server reads what is in flight and then learns of it."""
        self.client.mux.detach("cut")
        self.sockets[0].close()
        await until(lambda: not self.server.mux.is_up)
        self._close()

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    def _close(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.sockets = []

    async def close(self) -> None:
        self.cut()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def ends(window_bytes: int = 1 << 20, *, linked: bool = True) -> AsyncIterator[Ends]:
    pair = Ends(window_bytes)
    if linked:
        pair.link()
    try:
        yield pair
    finally:
        await pair.close()


async def echo(channel: Channel, _header: dict[str, Any] | None = None) -> None:
    while data := await channel.read():
        await channel.write(data)
    channel.close({"echoed": True})


async def read_all(channel: Channel) -> bytes:
    parts = []
    while data := await channel.read():
        parts.append(data)
    return b"".join(parts)
