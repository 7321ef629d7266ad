"""The part of a link that both backends share: its hosts, and the work that they do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tunnelkit.errors import TimeoutExpired, TunnelkitError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.link.options import LinkOptions, destination_words
from tunnelkit.link.shared.forward_table import ActiveForward, Connection, ForwardTable
from tunnelkit.link.shared.hop_forward_pool import Key, Route
from tunnelkit.link.shared.loss import first_loss, not_connected
from tunnelkit.model import Completed, LocalForward, check_host


class HostConnection(Connection, Protocol):
    """A backend's authenticated connection to one host."""

    @property
    def is_up(self) -> bool:
        """True if the connection is there, as far as is known."""
        ...

    async def open(self, *, verify: bool = False) -> bool:
        """Make sure that the connection is there; True if it is a new or adopted one."""
        ...

    async def check(self) -> bool:
        """True if the connection is there, as far as the backend can ask."""
        ...

    async def prove(self) -> None:
        """See `base.Link.doubt`."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class Sessions(Protocol):
    """Runs the commands and streams of one host."""

    async def run(self, words: Sequence[str], *, stdin: bytes, timeout_s: float) -> Completed:
        """See `base.Link.run`."""
        ...

    async def open_stream(self, words: Sequence[str]) -> ByteStream:
        """See `base.Link.open_stream`."""
        ...

    async def close(self) -> None:
        """Close all streams."""
        ...


C = TypeVar("C", bound=HostConnection)
S = TypeVar("S", bound=Sessions)
F = TypeVar("F", bound=ActiveForward)


@dataclass(frozen=True)
class LinkHost(Generic[C, S]):
    """A host of a link."""

    connection: C
    sessions: S


class HostLink(Link, Generic[C, S, F]):
    """A link with one connection to each host; the nodes' run inside the login's.

    A backend sets the attributes below; it adds `open`, `remote_shell` and `_host`.
    """

    _login: LinkHost[C, S]
    _forwards: ForwardTable[C, F]

    def __init__(self, options: LinkOptions, control_dir: Path) -> None:
        self._options = options
        self._directory = control_dir.absolute()
        self._known_hosts = options.known_hosts or self._directory / "known_hosts"
        self._nodes: dict[str, LinkHost[C, S]] = {}

    @property
    def name(self) -> str:
        """The login host, as the user wrote it."""
        return str(self._options.login)

    async def open_node(self, node: str) -> None:
        """See `base.Link.open_node`."""
        await self._node_connection(node)

    async def is_alive(self) -> bool:
        """See `base.Link.is_alive`."""
        return await self._login.connection.check()

    async def doubt(self) -> None:
        """See `base.Link.doubt`."""
        hosts = [self._login, *self._nodes.values()]
        await asyncio.gather(*(host.connection.prove() for host in hosts))

    async def wait_lost(self) -> str:
        """See `base.Link.wait_lost`."""
        login = self._login.connection
        if not login.is_up:
            return await login.wait()
        table = self._forwards
        return await first_loss(
            table.changed, lambda: [login.wait(), *table.carriers(), *table.retries()]
        )

    async def run(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes = b"",
        timeout_s: float = 30.0,
    ) -> Completed:
        """See `base.Link.run`."""
        host = await self._ready(node)
        try:
            return await host.sessions.run(argv, stdin=stdin, timeout_s=timeout_s)
        except TimeoutExpired:
            await self.doubt()
            raise

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ByteStream:
        """See `base.Link.open_stream`."""
        return await (await self._ready(node)).sessions.open_stream(argv)

    async def forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        """See `base.Link.forward`."""
        await self._ready(None)
        await self._forwards.add(forward, None if node is None else check_host(node))

    async def cancel_forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        """See `base.Link.cancel_forward`."""
        await self._forwards.cancel(forward, node)

    def forward_route(self, forward: LocalForward, *, node: str | None = None) -> Route | None:
        """`login`, `node` (the laptop encrypts twice) or `chain` (each leg encrypts once);
        None if that forward is not in place."""
        return self._forwards.route(forward, node)

    def failed_forwards(self) -> dict[Key, TunnelkitError]:
        """See `base.Link.failed_forwards`."""
        return self._forwards.failed()

    def destination(self, node: str | None = None) -> str:
        """See `base.Link.destination`."""
        return destination_words(node or self._options.login.destination)[-1]

    async def close(self) -> None:
        """See `base.Link.close`."""
        await self._forwards.close()
        hosts = [*self._nodes.values(), self._login]
        await asyncio.gather(*(host.sessions.close() for host in hosts))
        for host in hosts:  # the nodes first: they ride on the login's
            await host.connection.close()

    # -- hosts

    def _host(self, node: str | None) -> LinkHost[C, S]:
        """A host that is not connected yet."""
        raise NotImplementedError

    async def _adopt(self, host: LinkHost[C, S]) -> None:
        """Called with a node whose connection has just been made or adopted."""

    async def _ready(self, node: str | None) -> LinkHost[C, S]:
        """A host with a live connection. Raises ConnectionFailed if there is none."""
        if not self._login.connection.is_up:
            raise not_connected(self._options.login)
        if node is None:
            return self._login
        host = self._nodes.get(check_host(node))
        if host is None:
            host = self._nodes[node] = self._host(node)
        if await host.connection.open():
            await self._adopt(host)
            self._forwards.node_came()
        return host

    async def _node_connection(self, node: str) -> C:
        return (await self._ready(node)).connection
