"""The paramiko link: ssh in this process, where no OpenSSH with multiplexing is available.

One connection to the login host authenticates once; commands, streams and forwards are channels of
it. A compute node gets a connection of its own, inside the login's, when it is first needed.
Nothing of it outlives this process: a successor authenticates again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from paramiko import Channel

from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyError,
)
from tunnelkit.link.base import Prompter
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.paramiko_link.byte_pump import BytePump
from tunnelkit.link.paramiko_link.connect import Step
from tunnelkit.link.paramiko_link.connection import ParamikoConnection
from tunnelkit.link.paramiko_link.forwards import ParamikoForward, ParamikoForwards
from tunnelkit.link.paramiko_link.known_hosts import login_rules, node_rules
from tunnelkit.link.paramiko_link.sessions import ParamikoSessions
from tunnelkit.link.paramiko_link.ssh_config import ConfigFiles, HostConfig
from tunnelkit.link.paramiko_link.ssh_shim_server import Client, ShimCommand, SshShimServer
from tunnelkit.link.shared.address_pin import AddressPin
from tunnelkit.link.shared.host_link import HostLink, LinkHost
from tunnelkit.link.shared.socket_dir import private_directory
from tunnelkit.model import check_host


class ParamikoLink(HostLink[ParamikoConnection, ParamikoSessions, ParamikoForward]):
    """The link by paramiko; see `base.Link`.

    `control_dir` is a 0700 directory that belongs to this link alone.

    Of the options, `ssh` has no effect here. prompter: answers passwords, codes and new host keys;
    without one, or with `batch`, whatever would ask fails at once. attended: called before each
    connection; False means that nobody is there to answer. asks_nodes: the same for those to nodes.
    notice: called with what a host wants to show.
    """

    def __init__(
        self,
        options: LinkOptions,
        *,
        control_dir: Path,
        prompter: Prompter | None = None,
        batch: bool = False,
        attended: Callable[[], bool] = lambda: True,
        asks_nodes: Callable[[], bool] = lambda: True,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(options, control_dir)
        self._config = ConfigFiles(options.ssh_config)
        self._prompter = None if batch else _one_at_a_time(prompter)
        self._attended = attended
        self._asks_nodes = asks_nodes
        self._notice = notice or (lambda text: None)
        self._pin = AddressPin()
        self._login = self._host(None)
        self._forwards = ParamikoForwards(
            self._login.connection,
            self._login.sessions,
            self._node_connection,
            options,
        )
        self._lending = SshShimServer(self._directory / "shell.s", self._lend)

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
                f"{self.destination()}: logged in again. The last session was killed, and its"
                " connection with it, as paramiko's lives inside the session"
            )
        self._lending.open()
        await self._forwards.restore()

    def remote_shell(self, *, node: str | None = None) -> list[str]:
        """See `base.Link.remote_shell`: a small program that borrows a session of this link."""
        return self._lending.shell(None if node is None else check_host(node))

    async def close(self) -> None:
        """See `base.Link.close`."""
        await self._lending.close()
        await super().close()

    # -- hosts

    def _host(self, node: str | None) -> LinkHost[ParamikoConnection, ParamikoSessions]:
        """A host that is not connected yet."""
        options = self._options

        def prompter() -> Prompter | None:
            may_ask = self._attended() and (node is None or self._asks_nodes())
            return self._prompter if may_ask else None

        connection = ParamikoConnection(
            node or options.login.destination,
            (lambda: self._node_steps(node)) if node else self._login_steps,
            prompter=prompter,
            notice=lambda text: self._notice(text),
            connect_timeout_s=options.connect_timeout_s,
            auth_timeout_s=options.auth_timeout_s,
            alive_interval_s=options.alive_interval_s,
            alive_count_max=options.alive_count_max,
            upstream=self._login.connection if node else None,
        )
        return LinkHost(connection, ParamikoSessions(connection, limit=options.max_sessions))

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
        login_user = self._config.lookup(self._options.login.destination).user
        host = self._config.lookup(node, local_user_is=login_user)
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
