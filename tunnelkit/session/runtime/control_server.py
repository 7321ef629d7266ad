"""The control socket's server: `tk` commands talk to the session there.

A unix socket 0600 in the session's 0700 directory. Each connection uses the
wire, so calls, streams and notices share one protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.hello import exchange_hello
from tunnelkit.mux.listener import Listener
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import Handler, RpcError, RpcPeer
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.session.runtime.control_calls import MIRROR
from tunnelkit.session.runtime.control_message import Notice
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import Hello, Status

if TYPE_CHECKING:
    from tunnelkit.session.runtime.control_answers import MirrorEvent

Header = dict[str, object]
OnChannel = Callable[[Channel, Header, "ControlConnection"], None]
C = TypeVar("C", bound=Mapping[str, object])


class ControlConnection:
    """The connection of one `tk` command."""

    def __init__(self) -> None:
        self.rpc: RpcPeer | None = None
        self.mux: Mux | None = None
        #: Set by `tk up`: this command shows progress and may answer prompts.
        self.follows = False
        #: Time of that, in the clock's seconds: the last command to follow is prompted first.
        self.follows_since = 0.0
        #: Set by `tk sync --watch`: this command gets the mirror's events.
        self.watches_mirror = False

    def notify(self, notice: Notice[C], content: C) -> None:
        """Send the command a notice."""
        if self.rpc is not None:
            self.rpc.notify(notice.name, **content)


class ControlServer:
    """Server of the commands: `handlers` answer calls, `on_channel` gets all other channels."""

    def __init__(
        self,
        path: Path,
        handlers: Callable[[ControlConnection], dict[str, Handler]],
        on_channel: OnChannel,
    ) -> None:
        self._path = path
        self._handlers = handlers
        self._on_channel = on_channel
        self._listener = Listener(self._connected)
        self._bound = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: set[ControlConnection] = set()

    def open(self) -> None:
        """Bind and listen. The caller holds the session's lock, so an existing socket is stale."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._listener.open_unix(str(self._path))
        self._bound = True

    async def close(self) -> None:
        """Stop listening, close all connections, remove the socket."""
        self._listener.close()
        if self._bound:
            self._bound = False
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        await cancel_all(*self._tasks)

    def notify_followers(self, notice: Notice[C], content: C) -> None:
        """Send a notice to the commands that follow the session."""
        for connection in self.connections:
            if connection.follows:
                connection.notify(notice, content)

    def notify_watchers(self, event: MirrorEvent) -> None:
        """Send a mirror event to the commands that watch the mirror."""
        for connection in self.connections:
            if connection.watches_mirror:
                connection.notify(MIRROR, event)

    def _connected(self, sock: socket.socket) -> None:
        start(self._tasks, self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        connection = ControlConnection()
        tasks: list[asyncio.Task[None]] = []

        def opened(channel: Channel, header: Header) -> None:
            if header.get("type") == "rpc":
                connection.rpc = RpcPeer(channel, _translated(self._handlers(connection)))
                tasks.append(asyncio.create_task(connection.rpc.serve()))
            else:
                self._on_channel(channel, header, connection)

        mux = connection.mux = Mux(Endpoint(client=False), opened)
        self.connections.add(connection)
        try:
            hello, rest = await greet(sock, None)
            await mux.attach(sock.fileno(), sock.fileno(), hello, rest)
        except (OSError, ProtocolError, TunnelkitError):
            pass
        finally:
            self.connections.discard(connection)
            mux.end("command disconnected")
            await cancel_all(*tasks)
            sock.close()


def _translated(handlers: dict[str, Handler]) -> dict[str, Handler]:
    """Wrap the handlers so that their TunnelkitErrors reach the command with all fields."""

    def wrap(handler: Handler) -> Handler:
        async def call(params: Header) -> object:
            try:
                return await handler(params)
            except TunnelkitError as error:
                raise RpcError(dict(error.to_json())) from None

        return call

    return {name: wrap(handler) for name, handler in handlers.items()}


async def greet(sock: socket.socket, client_id: bytes | None) -> tuple[Hello, bytes]:
    """Exchange hellos over a control socket; return the peer's hello and the bytes after it.

    client_id: the command's id; None on the session's side.
    """
    endpoint = Endpoint(client=client_id is not None)
    ours = Hello(Status.FRESH, client_id or bytes(16), bytes(16), 0, endpoint.window_bytes)
    return await exchange_hello(sock.fileno(), sock.fileno(), ours)
