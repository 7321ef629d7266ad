"""The OpenSSH link: the user's own ssh, its config, agent, keys and Kerberos tickets.

One ControlMaster to the login host authenticates once; commands, streams and forwards
ride on it. A compute node gets a master of its own, inside the login's, when it is
first needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import pwd
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyError,
    TunnelkitError,
)
from tunnelkit.link.base import Prompter
from tunnelkit.link.openssh.argv import SshCommand
from tunnelkit.link.openssh.askpass import Asker, AskpassServer
from tunnelkit.link.openssh.control_master import ControlMaster
from tunnelkit.link.openssh.forwards import OpenSSHForward, OpenSSHForwards
from tunnelkit.link.openssh.patient_logins import PatientLogins
from tunnelkit.link.openssh.sessions import OpenSSHSessions
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.shared.address_pin import LoginPin
from tunnelkit.link.shared.ciphers import cipher_options
from tunnelkit.link.shared.host_keys import (
    EffectiveConfig,
    effective_config,
    login_options,
    node_options,
)
from tunnelkit.link.shared.host_link import HostLink, LinkHost
from tunnelkit.link.shared.socket_dir import private_directory

#: From the start of ssh to the first sign of life, beyond the time to connect.
_SILENCE_S = 30.0
_ASK_S = 10.0

_Host = LinkHost[ControlMaster, OpenSSHSessions]


class OpenSSHLink(HostLink[ControlMaster, OpenSSHSessions, OpenSSHForward]):
    """The link by OpenSSH's ssh; see `base.Link`.

    `control_dir` is a 0700 directory that belongs to this link alone; a successor with the same one
    takes over what a killed link left there.

    prompter: answers passwords, codes and new host keys; without one, or with `batch`, whatever
    would ask fails at once. attended: called before each connection; False means that nobody is
    there to answer, and the connection is made in BatchMode. asks_nodes: the same for those to
    nodes. notice: called with what ssh wants to show ("touch your security key"). once: see
    `base.LinkSetup`.
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
        patient_logins: Path | None = None,
        once: bool = False,
    ) -> None:
        super().__init__(options, control_dir)
        control_dir = self._directory
        self._opened = False
        self._once = once
        self._askpass = AskpassServer(control_dir, prompter, notice) if prompter else None
        self._batch = batch or prompter is None
        self._attended = attended
        self._asks_nodes = asks_nodes
        self._notice = notice
        self._command = SshCommand(options, batch=True)
        self._asking = SshCommand(options, batch=self._batch)
        count_max = math.ceil(options.auth_timeout_s / options.alive_interval_s)
        self._patient = SshCommand(replace(options, alive_count_max=count_max), batch=self._batch)
        self._patient_logins = PatientLogins(patient_logins)
        self._login = self._host(None)
        self._pin = LoginPin()
        self._forwards = self._table = OpenSSHForwards(
            self._login.connection,
            self._login.sessions,
            self._node_connection,
            options,
            directory=control_dir,
        )

    async def open(self) -> None:
        """See `base.Link.open`. After a loss it also puts the forwards back."""
        private_directory(self._directory, longest=self._control_path(None), owner="ssh")
        if not self._opened:
            self._opened = True
            self._sweep()
        if self._askpass and not self._batch:
            await self._askpass.open()
        try:
            if await self._login.connection.open(verify=True):
                if self._login.connection.adopted:
                    await self._table.drop_leftovers(self._login.connection)
                if not self._once:
                    await self._learn_host()
        except BaseException as error:
            if isinstance(error, ConnectionFailed) and not isinstance(
                error, (AuthenticationFailed, HostKeyError)
            ):
                self._pin.missed()
            if self._askpass and not self._login.connection.is_up:
                await self._askpass.close()
            raise
        await self._forwards.restore()

    def remote_shell(self, *, node: str | None = None) -> list[str]:
        """See `base.Link.remote_shell`. For a node, `open_node` has to come first."""
        return [*self._command.session(self._control_path(node)), "-o", "LogLevel=ERROR"]

    async def close(self) -> None:
        """See `base.Link.close`."""
        await super().close()
        if self._askpass:
            await self._askpass.close()
        self._sweep()

    # -- hosts

    def _host(self, node: str | None) -> _Host:
        """A host that is not connected yet."""
        name = node or self._options.login.destination
        hops = len(self._options.jumps) + 1
        master = ControlMaster(
            name,
            self._control_path(node),
            self._command,
            partial(self._prepare_node, node) if node else self._prepare_login,
            silence_limit_s=self._options.connect_timeout_s * hops + _SILENCE_S,
            auth_timeout_s=self._options.auth_timeout_s,
            patient_logins=self._patient_logins,
            upstream=self._login.connection if node else None,
            notice=self._notice,
        )
        argv = self._command.session(master.control_path)
        limit = self._options.max_sessions
        sessions = OpenSSHSessions(master, argv, name, directory=self._directory, limit=limit)
        return LinkHost(master, sessions)

    async def _adopt(self, host: _Host) -> None:
        if host.connection.adopted:
            await self._table.drop_leftovers(host.connection)

    async def _prepare_login(self, *, patient: bool) -> tuple[list[str], Asker | None]:
        name = self._options.login.destination
        command, asker = self._connecting(name, patient=patient, attended=self._attended())
        config = await effective_config(command.print_config(name), name)
        extra = [
            *self._pin.options(),
            *command.jump_option(),
            *cipher_options(config.ciphers),
            *await login_options(config, own=self._known_hosts),
        ]
        return command.master(self._control_path(None), name, extra=extra), asker

    async def _learn_host(self) -> None:
        """Remember which host the login's name led to, where it leads to several."""
        name = self._options.login.destination

        async def read(options: list[str]) -> EffectiveConfig:
            ssh, *words = self._command.print_config(name)
            return await effective_config([ssh, *options, *words], name)

        async def ask() -> str:
            argv = ["sh", "-c", 'echo "$SSH_CONNECTION"']
            done = await self._login.sessions.run(argv, stdin=b"", timeout_s=_ASK_S)
            words = done.text.strip().rpartition("\n")[2].split()
            return words[2] if len(words) == 4 else ""

        if self._options.jumps:
            return
        with contextlib.suppress(TunnelkitError):
            moved = await self._pin.learn_from(read, ask)
            if moved is not None and self._notice is not None:
                self._notice(f"{name} is another host now: {moved[1]}, no longer {moved[0]}")

    async def _prepare_node(self, node: str, *, patient: bool) -> tuple[list[str], Asker | None]:
        attended = self._attended() and self._asks_nodes()
        command, asker = self._connecting(node, patient=patient, attended=attended)
        config = await effective_config(command.print_config(node), node)
        login = re.sub(r"[^A-Za-z0-9.-]", "-", self.destination())
        extra = [
            *command.through_master(self._control_path(None)),
            *await self._node_user(config),
            *cipher_options(config.ciphers),
            *await node_options(config, alias=f"{node}.via.{login}", own=self._known_hosts),
        ]
        return command.master(self._control_path(node), node, extra=extra), asker

    async def _node_user(self, config: EffectiveConfig) -> list[str]:
        """The login host's user as an option for a node without one of its own. `ssh -G` gives the
        local user then, so a setting of just that name counts as none."""
        if config.user != pwd.getpwuid(os.getuid()).pw_name:
            return []
        name = self._options.login.destination
        login = await effective_config(self._command.print_config(name), name)
        return [] if login.user == config.user else ["-o", f"User={login.user}"]

    def _connecting(
        self, name: str, *, patient: bool, attended: bool
    ) -> tuple[SshCommand, Asker | None]:
        """The ssh command of the next connection: one that may ask, or one in BatchMode.

        patient: wait for a confirmation as long as `auth_timeout_s` allows. ssh has one limit for
        silence, so it notices a loss as late; `doubt` does so earlier.
        """
        asker = None
        if self._askpass and not self._batch:
            asker = self._askpass.asker(name, attended=attended)
        if not attended:
            return self._command, asker
        return self._patient if patient else self._asking, asker

    # -- files

    def _control_path(self, node: str | None) -> Path:
        """One name for one way: another login, jump or config never meets this socket."""
        options = self._options
        way = [options.login.destination, *(jump.destination for jump in options.jumps)]
        key = "\0".join([*way, str(options.ssh_config or ""), node or ""])
        digest = hashlib.sha256(key.encode()).hexdigest()[:10]
        return self._directory / f"{'n' if node else 'm'}-{digest}"

    def _sweep(self) -> None:
        """Remove the log pipes of killed clients."""
        for path in self._directory.glob("log-*"):
            path.unlink(missing_ok=True)
