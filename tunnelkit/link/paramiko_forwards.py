"""LocalForwards of the paramiko link: sshtunnel's forwarder on connections that are there.

sshtunnel by itself makes a connection, and so an authentication, for each forwarder; it
sets no TCP_NODELAY, does not pass a half close on, and its stop waits without end for
connections that hang. Its listener and its bookkeeping are used; what handles a
connection, and what ends it, is ours.

sshd sets TCP_NODELAY on its end of a connection with the first command that it runs there:
a session has run one on each host long before it forwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import sshtunnel
from paramiko import SSHException

from tunnelkit.errors import ConnectionFailed, TunnelkitError, UsageError
from tunnelkit.link import ports
from tunnelkit.link.chain import PROBE_TARGET
from tunnelkit.link.paramiko_connection import Connection
from tunnelkit.link.paramiko_pump import Pump
from tunnelkit.link.paramiko_transport import PROHIBITED, Refused, SshTransport
from tunnelkit.link.threads import in_thread
from tunnelkit.model import LocalForward

Key = tuple[LocalForward, str | None]

_CHANNEL_S = 15.0
_STOP_S = 3.0
_LOG = logging.getLogger("tunnelkit.link.sshtunnel")
_LOG.addHandler(logging.NullHandler())


class _Handler(sshtunnel._ForwardHandler):  # type: ignore[misc]
    """One accepted connection: a channel, and a pump between the two."""

    forwarder: Forwarder

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self.remote_address
        try:
            channel = self.ssh_transport.direct(host, port, timeout_s=_CHANNEL_S)
        except (SSHException, EOFError, OSError) as error:
            _LOG.info("no channel to %s:%s: %s", host, port, error)
            return  # the caller closes the connection: nobody listens there
        pump = Pump(self.request, channel, done=lambda: self.forwarder.drop(pump))
        if self.forwarder.keep(pump):
            pump.carry()
        else:
            pump.stop()
            self.request.close()


class _Server(sshtunnel._ThreadingForwardServer):  # type: ignore[misc]
    request_queue_size = 128
    daemon_threads = True

    def shutdown_request(self, request: socket.socket) -> None:
        # The pump that had the connection has closed it; its last bytes may be under way.
        self.close_request(request)


class Forwarder(sshtunnel.SSHTunnelForwarder):  # type: ignore[misc]
    """One LocalForward on a connection that is there. `start` and `stop` block, bounded."""

    def __init__(self, transport: SshTransport, forward: LocalForward) -> None:
        self._pumps: set[Pump] = set()
        self._stopped = False
        self._server_list: list[_Server] = []
        self.tunnel_is_up: dict[Any, bool] = {}
        self._lock = threading.Lock()
        super().__init__(
            ("127.0.0.1", 22),  # never used: the transport is there already
            ssh_config_file=None,
            allow_agent=False,
            host_pkey_directories=[],
            local_bind_address=("127.0.0.1", forward.bind_port),
            remote_bind_address=(forward.host, forward.port),
            logger=_LOG,
        )
        self._transport = transport

    @staticmethod
    def _consolidate_auth(*_: Any, **__: Any) -> tuple[str, list[Any]]:
        return "", []  # nothing is authenticated here

    def _connect_to_gateway(self) -> None:
        """Only called when the connection is gone: never make another."""

    def _make_ssh_forward_handler_class(self, remote_address_: tuple[str, int]) -> type:
        return type(
            "Handler",
            (_Handler,),
            {
                "remote_address": remote_address_,
                "ssh_transport": self._transport,
                "logger": _LOG,
                "forwarder": self,
            },
        )

    def _make_ssh_forward_server_class(self, remote_address_: tuple[str, int]) -> type:
        return _Server

    def keep(self, pump: Pump) -> bool:
        """Own a connection's pump until `drop`; False if it is too late for that."""
        with self._lock:
            if not self._stopped:
                self._pumps.add(pump)
            return not self._stopped

    def drop(self, pump: Pump) -> None:
        with self._lock:
            self._pumps.discard(pump)

    def stop_listening(self) -> None:
        """Close the port; connections go on."""
        for server in self._server_list:
            stopping = threading.Thread(target=server.shutdown, daemon=True, name="tk-link stop")
            stopping.start()
            stopping.join(_STOP_S)
            server.socket.close()
        self._server_list = []
        self.tunnel_is_up = {}
        self.is_alive = False

    def _stop_transport(self, force: bool = False) -> None:
        """sshtunnel's own would close the connection that all others share, and wait for each
        of the connections carried."""
        self.stop_listening()
        with self._lock:
            self._stopped = True
            pumps = list(self._pumps)
        for pump in pumps:
            pump.stop()
        for pump in pumps:
            pump.join(_STOP_S)

    def __del__(self) -> None:
        """Nothing: the end is explicit."""


class Forwards:
    """The forwards of one link. `node_connection` opens (or gives) the connection to a node."""

    def __init__(
        self, login: Connection, node_connection: Callable[[str], Awaitable[Connection]]
    ) -> None:
        self._login = login
        self._node_connection = node_connection
        self._wanted: dict[Key, tuple[Forwarder, Connection] | None] = {}
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
                await asyncio.to_thread(active[0].stop_listening)
                self._cancelled.append(active[0])
            self.changed.set()

    def route(self, forward: LocalForward, node: str | None) -> str | None:
        """`login`, or `node` (the laptop encrypts twice); None if it is not in place."""
        active = self._wanted.get((forward, node))
        if active is None or not _is_up(*active):
            return None
        return "login" if node is None else "node"

    def failed(self) -> dict[Key, TunnelkitError]:
        """Forwards that were in place once and could not be put back, with the reason."""
        return dict(self._failed)

    async def restore(self) -> None:
        """Put back what a lost connection took along. What can't be is in `failed`."""
        async with self._lock:
            for key, active in list(self._wanted.items()):
                if active is not None and _is_up(*active):
                    continue
                try:
                    if active is not None:
                        await asyncio.to_thread(active[0].stop)
                        self._wanted[key] = None
                    await self._add(key)
                except TunnelkitError as error:
                    self._failed[key] = error

    def carriers(self) -> list[Coroutine[Any, Any, str]]:
        """What to wait on, to learn that a forward is gone."""
        return [_gone(*active) for active in self._wanted.values() if active is not None]

    async def close(self) -> None:
        """End all forwards and all that they carry."""
        async with self._lock:
            forwarders = [active[0] for active in self._wanted.values() if active is not None]
            forwarders += self._cancelled
            self._wanted.clear()
            self._failed.clear()
            self._cancelled.clear()
            await asyncio.gather(*(asyncio.to_thread(one.stop) for one in forwarders))

    # -- one forward

    async def _add(self, key: Key) -> None:
        forward, node = key
        active = self._wanted.get(key)
        if active is not None and _is_up(*active):
            return
        ports.check_free(forward.bind_port)
        connection = self._login if node is None else await self._node_connection(node)
        transport = connection.transport
        await self._check_allowed(connection.host, transport)
        forwarder = Forwarder(transport, forward)
        try:
            await asyncio.to_thread(forwarder.start)
        except sshtunnel.BaseSSHTunnelForwarderError as error:
            await asyncio.to_thread(forwarder.stop)
            ports.check_free(forward.bind_port)
            if not transport.is_active():
                raise ConnectionFailed(
                    f"the connection to {connection.host} is lost",
                    cause=str(error),
                    transient=True,
                    hint="tk reconnects by itself; `tk status` tells how it stands",
                ) from error
            raise UsageError(
                f"local port {forward.bind_port} can't be had",
                cause=str(error),
                hint="choose another local port",
            ) from error
        self._wanted[key] = (forwarder, connection)
        self._failed.pop(key, None)
        self.changed.set()

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
                except Refused as error:
                    if error.code == PROHIBITED:
                        raise ConnectionFailed(
                            f"{host} forbids TCP forwarding",
                            cause=error.text,
                            hint="ask its admins for AllowTcpForwarding",
                        ) from error

        await in_thread("probe", probe, abort=lambda: None)
        transport.may_forward = True


def _is_up(forwarder: Forwarder, connection: Connection) -> bool:
    return bool(forwarder.is_alive and forwarder._transport.is_active() and connection.is_up)


async def _gone(forwarder: Forwarder, connection: Connection) -> str:
    if not _is_up(forwarder, connection):
        return f"the connection of the forward to {connection.host} ended"
    return await connection.wait()
