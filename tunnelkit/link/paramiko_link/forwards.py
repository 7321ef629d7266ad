"""LocalForwards of the paramiko link: which way each takes, and how they come back.

The routes are those of forwards.py. A chain's unix sockets on the login host are reached by
channels of the login's connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sshtunnel
from paramiko import Channel, SSHException

from tunnelkit import local_ports
from tunnelkit.errors import ConnectionFailed, TunnelkitError, UsageError
from tunnelkit.link.paramiko_link.connection import ParamikoConnection
from tunnelkit.link.paramiko_link.forwarder import Forwarder
from tunnelkit.link.paramiko_link.sessions import ParamikoSessions
from tunnelkit.link.paramiko_link.thread_tasks import in_thread
from tunnelkit.link.paramiko_link.transport import PROHIBITED, AuthRefused, SshTransport
from tunnelkit.link.shared.hop_forward import PROBE_TARGET, HopForward
from tunnelkit.link.shared.hop_forward_pool import (
    HopForwardPool,
    Key,
    Route,
    by_first_way,
    no_unix_sockets,
)
from tunnelkit.link.shared.loss import first_end, lost
from tunnelkit.model import LocalForward

_CHANNEL_S = 15.0
_GREETING_S = 5.0


@dataclass(frozen=True)
class ParamikoForward:
    """A forward in place."""

    route: Route
    forwarder: Forwarder
    connection: ParamikoConnection
    chain: HopForward | None = None

    @property
    def is_up(self) -> bool:
        forwarder = self.forwarder
        return bool(
            forwarder.is_alive
            and forwarder._transport.is_active()
            and self.connection.is_up
            and (self.chain is None or self.chain.is_up)
        )


class ParamikoForwards:
    """The forwards of one link. `node_connection` opens (or gives) the connection to a node;
    `login_sessions` runs the far ends of chains; the rest: see `LinkOptions`."""

    def __init__(
        self,
        login: ParamikoConnection,
        login_sessions: ParamikoSessions,
        node_connection: Callable[[str], Awaitable[ParamikoConnection]],
        *,
        connect_timeout_s: int,
        node_routes: Sequence[str],
    ) -> None:
        self._login = login
        self._node_connection = node_connection
        self._node_routes = node_routes
        self._chains = HopForwardPool(
            login_sessions, self._check_streamlocal, connect_timeout_s=connect_timeout_s
        )
        self._wanted: dict[Key, ParamikoForward | None] = {}
        self._cancelled: list[Forwarder] = []
        self._failed: dict[Key, TunnelkitError] = {}
        self._lock = asyncio.Lock()
        self.changed = asyncio.Event()

    async def add(self, forward: LocalForward, node: str | None) -> None:
        """Put a forward in place; nothing happens if it already is. Raises as `Link.forward`."""
        async with self._lock:
            await self._add((forward, node))

    async def cancel(self, forward: LocalForward, node: str | None) -> None:
        """Take a forward away; established connections through it go on."""
        async with self._lock:
            active = self._wanted.pop((forward, node), None)
            self._failed.pop((forward, node), None)
            if active is not None:
                await asyncio.to_thread(active.forwarder.stop_listening)
                await _withdraw(forward, active)
                self._cancelled.append(active.forwarder)
            self.changed.set()

    def route(self, forward: LocalForward, node: str | None) -> Route | None:
        """The route of a forward that is in place, else None."""
        active = self._wanted.get((forward, node))
        return active.route if active and active.is_up else None

    def failed(self) -> dict[Key, TunnelkitError]:
        """Forwards that were in place once and could not be put back, with the reason."""
        return dict(self._failed)

    async def restore(self) -> None:
        """Put back what a lost connection took along. What can't be is in `failed`."""
        async with self._lock:
            self._chains.try_anew()
            for key, active in list(self._wanted.items()):
                if active is not None and active.is_up:
                    continue
                try:
                    if active is not None:
                        await asyncio.to_thread(active.forwarder.stop)
                        self._wanted[key] = None
                        await _withdraw(key[0], active)
                    await self._add(key)
                except TunnelkitError as error:
                    self._failed[key] = error

    def carriers(self) -> list[Coroutine[Any, Any, str]]:
        """Coroutines that end when a forward is lost, each with the reason."""
        return [_gone(active) for active in self._wanted.values() if active is not None]

    async def close(self) -> None:
        """End all forwards and all that they carry."""
        async with self._lock:
            active = [one.forwarder for one in self._wanted.values() if one is not None]
            forwarders = [*active, *self._cancelled]
            self._wanted.clear()
            self._failed.clear()
            self._cancelled.clear()
            await asyncio.gather(*(asyncio.to_thread(one.stop) for one in forwarders))
            await self._chains.close()

    # -- one forward

    async def _add(self, key: Key) -> None:
        forward, node = key
        active = self._wanted.get(key)
        if active is not None and active.is_up:
            return
        local_ports.check_free(forward.bind_port)
        if node is None:
            active = await self._by_connection("login", self._login, forward)
        else:
            active = await self._to_node(node, forward)
        self._wanted[key] = active
        self._failed.pop(key, None)
        self.changed.set()

    async def _to_node(self, node: str, forward: LocalForward) -> ParamikoForward:
        ways = {
            "node": lambda: self._by_node(node, forward),
            "chain": lambda: self._by_chain(node, forward),
        }
        return await by_first_way(node, self._node_routes, ways)

    async def _by_node(self, node: str, forward: LocalForward) -> ParamikoForward:
        return await self._by_connection("node", await self._node_connection(node), forward)

    async def _by_connection(
        self, route: Route, connection: ParamikoConnection, forward: LocalForward
    ) -> ParamikoForward:
        transport = connection.transport
        await self._check_allowed(connection.host, transport)
        reach = partial(transport.direct, forward.host, forward.port, timeout_s=_CHANNEL_S)
        return ParamikoForward(route, await self._listen(connection, forward, reach), connection)

    async def _by_chain(self, node: str, forward: LocalForward) -> ParamikoForward:
        chain = await self._chains.get(node)
        path = await chain.add(forward)
        try:
            reach = partial(self._login.transport.unix, path, timeout_s=_CHANNEL_S)
            forwarder = await self._listen(self._login, forward, reach)
        except TunnelkitError:
            await chain.remove(forward)
            raise
        return ParamikoForward("chain", forwarder, self._login, chain)

    async def _listen(
        self, connection: ParamikoConnection, forward: LocalForward, reach: Callable[[], Channel]
    ) -> Forwarder:
        transport = connection.transport
        forwarder = Forwarder(transport, forward, reach)
        try:
            await asyncio.to_thread(forwarder.start)
        except sshtunnel.BaseSSHTunnelForwarderError as error:
            await asyncio.to_thread(forwarder.stop)
            local_ports.check_free(forward.bind_port)
            if not transport.is_active():
                raise lost(connection.host, str(error)) from error
            raise UsageError(
                f"local port {forward.bind_port} can't be had",
                cause=str(error),
                hint="choose another local port",
            ) from error
        return forwarder

    async def _check_streamlocal(self, chain: HopForward) -> None:
        """Prove that the login's sshd lets us reach a unix socket there: the chain's own
        control socket greets at once, and nothing else is disturbed."""
        transport = self._login.transport

        def greeting() -> bytes:
            with contextlib.suppress(SSHException, OSError, EOFError):
                channel = transport.unix(chain.control_socket, timeout_s=_CHANNEL_S)
                try:
                    channel.settimeout(_GREETING_S)
                    return channel.recv(4)
                finally:
                    channel.close()
            return b""

        if not await in_thread("probe", greeting, abort=lambda: None):
            raise no_unix_sockets(self._login.host)

    async def _check_allowed(self, host: str, transport: SshTransport) -> None:
        """Raise ConnectionFailed if sshd forbids TCP forwarding: a listener here would let
        every connection die."""
        if transport.may_forward:
            return
        name, _, port = PROBE_TARGET.partition(":")

        def probe() -> None:
            with contextlib.suppress(SSHException, OSError, EOFError):
                try:
                    transport.direct(name, int(port), timeout_s=_CHANNEL_S).close()
                except AuthRefused as error:
                    if error.code == PROHIBITED:
                        raise ConnectionFailed(
                            f"{host} forbids TCP forwarding",
                            cause=error.text,
                            hint="ask its admins for AllowTcpForwarding",
                        ) from error

        await in_thread("probe", probe, abort=lambda: None)
        transport.may_forward = True


async def _withdraw(forward: LocalForward, active: ParamikoForward) -> None:
    """Take the far end of a chain's forward away, where that is still there."""
    if active.chain is not None and active.chain.is_up:
        with contextlib.suppress(ConnectionFailed):
            await active.chain.remove(forward)


async def _gone(active: ParamikoForward) -> str:
    """Return, with the reason, once a forward's connections are no more what they were."""
    if not active.is_up:
        name = active.chain.node if active.chain else active.connection.host
        return f"the connection of the forward to {name} ended"
    chain = [active.chain.wait()] if active.chain else []
    return await first_end(active.connection.wait(), *chain)
