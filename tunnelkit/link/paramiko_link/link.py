"""The paramiko link: ssh in this process, where no OpenSSH with multiplexing is available.

One connection to the login host authenticates once; commands, streams and forwards are channels of
it. A compute node gets a connection of its own, inside the login's, when it is first needed.
Nothing of it outlives this process: a successor authenticates again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paramiko import Channel

from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyError,
    TunnelkitError,
)
from tunnelkit.link.base import Link, Prompter
from tunnelkit.link.options import LinkOptions, destination_words
from tunnelkit.link.paramiko_link.byte_pump import BytePump
from tunnelkit.link.paramiko_link.connect import Step
from tunnelkit.link.paramiko_link.connection import ParamikoConnection
from tunnelkit.link.paramiko_link.forwards import ParamikoForwards
from tunnelkit.link.paramiko_link.known_hosts import login_rules, node_rules
from tunnelkit.link.paramiko_link.sessions import ChannelStream, ParamikoSessions
from tunnelkit.link.paramiko_link.ssh_config import ConfigFiles, HostConfig
from tunnelkit.link.paramiko_link.ssh_shim_server import Client, ShimCommand, SshShimServer
from tunnelkit.link.shared.address_pin import AddressPin
from tunnelkit.link.shared.hop_forward_pool import Key
from tunnelkit.link.shared.loss import first_loss, not_connected
from tunnelkit.link.shared.socket_dir import private_directory
from tunnelkit.model import Completed, LocalForward, check_host


@dataclass(frozen=True)
class _Host:
    connection: ParamikoConnection
    sessions: ParamikoSessions


class ParamikoLink(Link):
    """The link by paramiko; see `base.Link`.

    `control_dir` is a 0700 directory that belongs to this link alone.

    Of the options, `ssh` has no effect here. prompter: answers passwords, codes and new host keys;
    without one, or with `batch`, whatever would ask fails at once. attended: called before each
    connection; False means that nobody is there to answer. notice: called with what a host wants to
    show.
    """

    def __init__(
        self,
        options: LinkOptions,
        *,
        control_dir: Path,
        prompter: Prompter | None = None,
        batch: bool = False,
        attended: Callable[[], bool] = lambda: True,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._options = options
        self._directory = control_dir = control_dir.absolute()
        self._known_hosts = options.known_hosts or control_dir / "known_hosts"
        self._config = ConfigFiles(options.ssh_config)
        self._prompter = None if batch else _one_at_a_time(prompter)
        self._attended = attended
        self._notice = notice or (lambda text: None)
        self._pin = AddressPin()
        self._login = self._host(None)
        self._nodes: dict[str, _Host] = {}
        self._forwards = ParamikoForwards(
            self._login.connection,
            self._login.sessions,
            self._node_connection,
            connect_timeout_s=options.connect_timeout_s,
            node_routes=options.node_routes,
        )
        self._lending = SshShimServer(control_dir / "shell.s", self._lend)

    @property
    def name(self) -> str:
        """The login host, as the user wrote it."""
        return str(self._options.login)

    async def open(self) -> None:
        """See `base.Link.open`. A killed predecessor leaves no connection to take over."""
        private_directory(self._directory, longest=self._directory / "shell.s", owner="tk")
        killed = self._lending.is_left_behind()
        try:
            if await self._login.connection.open(verify=True):
                await self._learn_host()
        except ConnectionFailed as error:
            if not isinstance(error, AuthenticationFailed | HostKeyError):
                self._pin.missed()
            raise
        if killed:
            self._notice(
                f"{self.destination()}: logged in anew. The last session was killed, and its"
                " connection with it, as paramiko's lives inside the session"
            )
        self._lending.open()
        await self._forwards.restore()

    async def open_node(self, node: str) -> None:
        """Connect to a node now; `run` and the like do so by themselves, `remote_shell` too."""
        await self._node_connection(node)

    async def is_alive(self) -> bool:
        return await self._login.connection.check()

    async def wait_lost(self) -> str:
        """Wait until the connection to the login host, or one that carries a forward to a node, is
        lost.

        Returns the reason. `open` then restores what it can.
        """
        return await first_loss(
            self._forwards.changed,
            lambda: [self._login.connection.wait(), *self._forwards.carriers()],
        )

    async def run(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes = b"",
        timeout_s: float = 30.0,
    ) -> Completed:
        host = await self._ready(node)
        return await host.sessions.run(argv, stdin=stdin, timeout_s=timeout_s)

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ChannelStream:
        return await (await self._ready(node)).sessions.open_stream(argv)

    async def forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        await self._ready(None)
        await self._forwards.add(forward, None if node is None else check_host(node))

    async def cancel_forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        await self._forwards.cancel(forward, node)

    def forward_route(self, forward: LocalForward, *, node: str | None = None) -> str | None:
        """As `OpenSSHLink.forward_route`."""
        return self._forwards.route(forward, node)

    def failed_forwards(self) -> dict[Key, TunnelkitError]:
        """Forwards that the last `open` could not put back, with the reason."""
        return self._forwards.failed()

    def remote_shell(self, *, node: str | None = None) -> list[str]:
        """See `base.Link.remote_shell`: a small program that borrows a session of this link."""
        return self._lending.shell(None if node is None else check_host(node))

    def destination(self, node: str | None = None) -> str:
        return destination_words(node or self._options.login.destination)[-1]

    async def close(self) -> None:
        await self._lending.close()
        await self._forwards.close()
        hosts = [*self._nodes.values(), self._login]
        await asyncio.gather(*(host.sessions.close() for host in hosts))
        for host in hosts:  # the nodes first: they ride on the login's
            await host.connection.close()

    # -- hosts

    def _host(self, node: str | None) -> _Host:
        """A host that is not connected yet."""
        options = self._options
        connection = ParamikoConnection(
            node or options.login.destination,
            (lambda: self._node_steps(node)) if node else self._login_steps,
            prompter=lambda: self._prompter if self._attended() else None,
            notice=lambda text: self._notice(text),
            connect_timeout_s=options.connect_timeout_s,
            auth_timeout_s=options.auth_timeout_s,
            alive_interval_s=options.alive_interval_s,
            alive_count_max=options.alive_count_max,
            upstream=self._login.connection if node else None,
        )
        return _Host(connection, ParamikoSessions(connection, limit=options.max_sessions))

    async def _ready(self, node: str | None) -> _Host:
        """A host with a live connection. Raises ConnectionFailed if there is none."""
        if not self._login.connection.is_up:
            raise not_connected(self._options.login)
        if node is None:
            return self._login
        host = self._nodes.get(check_host(node))
        if host is None:
            host = self._nodes[node] = self._host(node)
        await host.connection.open()
        return host

    async def _node_connection(self, node: str) -> ParamikoConnection:
        return (await self._ready(node)).connection

    def _way(self) -> list[HostConfig]:
        return self._config.way(self._options.login.destination, self._options.jumps)

    def _login_steps(self) -> list[Step]:
        way = self._way()
        if self._pin.address is not None:
            way = [replace(way[0], address=self._pin.address), *way[1:]]
        return [Step(host, login_rules(host, self._known_hosts)) for host in way]

    async def _learn_host(self) -> None:
        """Remember which host the login's name led to, where it leads to several."""
        way = await asyncio.to_thread(self._way)
        if self._pin.address is not None or len(way) > 1 or way[0].proxy_command:
            return

        async def where() -> str:
            return self._login.connection.transport.dialled()

        async def may_hold(address: str) -> bool:
            return True  # its name stays: only another address is dialled

        moved = await self._pin.learn(way[0].hostname, where, may_hold)
        if moved is not None:
            self._notice(f"{way[0].name} is another host now: {moved[1]}, no longer {moved[0]}")

    def _node_steps(self, node: str) -> list[Step]:
        host = self._config.lookup(node)
        login = re.sub(r"[^A-Za-z0-9.-]", "-", self.destination())
        return [Step(host, node_rules(host, self._known_hosts, alias=f"{node}.via.{login}"))]

    async def _lend(
        self,
        client: Client,
        node: str | None,
        command: str,
        subsystem: bool,
        done: Callable[[], None],
    ) -> ShimCommand:
        """Run a client's command; it counts for no slot, as rsync beside a mux does."""

        def start(channel: Channel) -> None:
            if subsystem:
                channel.invoke_subsystem(command)
            else:
                channel.exec_command(command)

        channel = await (await self._ready(node)).sessions.channel(start)

        def over() -> None:
            client.exit(channel.exit_status if channel.exit_status >= 0 else 255)

        pump = BytePump(
            client.sock.dup(), channel, out=client.out, err=client.err, over=over, done=done
        )
        pump.start()
        return pump


def _one_at_a_time(prompter: Prompter | None) -> Prompter | None:
    """A prompter that asks a user one question at a time, also when two hosts ask at once."""
    if prompter is None:
        return None
    asked = prompter
    lock = asyncio.Lock()

    async def ask(question: str, echo: bool) -> str | None:
        async with lock:
            return await asked(question, echo)

    return ask
