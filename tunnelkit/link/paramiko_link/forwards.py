"""LocalForwards on paramiko's connections; a chain's unix socket is a channel of the login's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import sshtunnel
from paramiko import Channel, SSHException

from tunnelkit import local_ports
from tunnelkit.errors import ConnectionFailed, UsageError
from tunnelkit.link.paramiko_link.connection import ParamikoConnection
from tunnelkit.link.paramiko_link.forwarder import Forwarder
from tunnelkit.link.paramiko_link.thread_tasks import in_thread
from tunnelkit.link.paramiko_link.transport import PROHIBITED, AuthRefused, SshTransport
from tunnelkit.link.shared.forward_table import ForwardTable, remove_far_end
from tunnelkit.link.shared.hop_forward import PROBE_TARGET, HopForward
from tunnelkit.link.shared.hop_forward_pool import Route, no_unix_sockets
from tunnelkit.link.shared.loss import lost
from tunnelkit.model import LocalForward

_CHANNEL_S = 15.0
_GREETING_S = 5.0


@dataclass(frozen=True)
class ParamikoForward:
    """A forward in place: sshtunnel's listener, and the connection that its channels use."""

    route: Route
    forwarder: Forwarder
    connection: ParamikoConnection
    chain: HopForward | None = None

    @property
    def is_up(self) -> bool:
        """True if the port listens, and all that carries it is still there."""
        forwarder = self.forwarder
        return bool(
            forwarder.is_alive
            and forwarder._transport.is_active()
            and self.connection.is_up
            and (self.chain is None or self.chain.is_up)
        )


class ParamikoForwards(ForwardTable[ParamikoConnection, ParamikoForward]):
    """The forwards of one link over paramiko's connections; see `ForwardTable`."""

    @cached_property
    def _cancelled(self) -> list[Forwarder]:
        """Their ports are closed; connections through them may go on."""
        return []

    async def _by_connection(
        self, route: Route, connection: ParamikoConnection, forward: LocalForward
    ) -> ParamikoForward:
        transport = connection.transport
        await self._check_allowed(connection.host, transport)
        reach = partial(transport.direct, forward.host, forward.port, timeout_s=_CHANNEL_S)
        return ParamikoForward(route, await self._listen(connection, forward, reach), connection)

    async def _through(
        self, chain: HopForward, path: str, forward: LocalForward
    ) -> ParamikoForward:
        reach = partial(self._login.transport.unix, path, timeout_s=_CHANNEL_S)
        forwarder = await self._listen(self._login, forward, reach)
        return ParamikoForward("chain", forwarder, self._login, chain)

    async def _withdraw(self, forward: LocalForward, active: ParamikoForward) -> None:
        await asyncio.to_thread(active.forwarder.stop_listening)
        await remove_far_end(forward, active.chain)
        self._cancelled.append(active.forwarder)

    async def _discard(self, forward: LocalForward, active: ParamikoForward) -> None:
        await asyncio.to_thread(active.forwarder.stop)
        await remove_far_end(forward, active.chain)

    async def _end(self, active: Sequence[ParamikoForward]) -> None:
        forwarders = [*(one.forwarder for one in active), *self._cancelled]
        self._cancelled.clear()
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in forwarders))

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
                f"local port {forward.bind_port} can't be opened",
                cause=str(error),
                hint="choose another local port",
            ) from error
        return forwarder

    async def _check_streamlocal(self, chain: HopForward) -> None:
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
