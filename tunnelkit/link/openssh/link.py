"""The OpenSSH link: the user's own ssh, its config, agent, keys and Kerberos tickets.

One ControlMaster to the login host authenticates once; commands, streams and forwards
ride on it. A compute node gets a master of its own, inside the login's, when it is
first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyError,
    TunnelkitError,
)
from tunnelkit.link.base import Link, Prompter
from tunnelkit.link.openssh.argv import SshCommand
from tunnelkit.link.openssh.askpass import Asker, AskpassServer
from tunnelkit.link.openssh.control_master import ControlMaster
from tunnelkit.link.openssh.forwards import OpenSSHForwards
from tunnelkit.link.openssh.sessions import MuxStream, OpenSSHSessions
from tunnelkit.link.options import LinkOptions, destination_words
from tunnelkit.link.shared.address_pin import LoginPin
from tunnelkit.link.shared.ciphers import cipher_options
from tunnelkit.link.shared.hop_forward_pool import Key, Route
from tunnelkit.link.shared.host_keys import (
    EffectiveConfig,
    effective_config,
    login_options,
    node_options,
)
from tunnelkit.link.shared.loss import first_loss, not_connected
from tunnelkit.link.shared.socket_dir import private_directory
from tunnelkit.model import Completed, LocalForward, check_host

#: From the start of ssh to the first sign of life, beyond the time to connect.
_SILENCE_S = 30.0
_ASK_S = 10.0


@dataclass(frozen=True)
class _Host:
    master: ControlMaster
    sessions: OpenSSHSessions


class OpenSSHLink(Link):
    """The link by OpenSSH's ssh; see `base.Link`.

    `control_dir` is a 0700 directory that belongs to this link alone; a successor with the same one
    takes over what a killed link left there.

    prompter: answers passwords, codes and new host keys; without one, or with `batch`, whatever
    would ask fails at once. attended: called before each connection; False means that nobody is
    there to answer, and the connection is made in BatchMode. notice: called with what ssh wants to
    show ("touch your security key").
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
        self._opened = False
        self._directory = control_dir = control_dir.absolute()
        self._known_hosts = options.known_hosts or control_dir / "known_hosts"
        self._askpass = AskpassServer(control_dir, prompter, notice) if prompter else None
        self._batch = batch or prompter is None
        self._attended = attended
        self._notice = notice
        self._command = SshCommand(options, batch=True)
        self._asking = SshCommand(options, batch=self._batch)
        self._login = self._host(None)
        self._nodes: dict[str, _Host] = {}
        self._pin = LoginPin()
        self._forwards = OpenSSHForwards(
            self._login.master,
            self._login.sessions,
            self._node_master,
            directory=control_dir,
            connect_timeout_s=options.connect_timeout_s,
            node_routes=options.node_routes,
        )

    @property
    def name(self) -> str:
        """The login host, as the user wrote it."""
        return str(self._options.login)

    async def open(self) -> None:
        """See `base.Link.open`. After a loss it also puts the forwards back."""
        private_directory(self._directory, longest=self._control_path(None), owner="ssh")
        if not self._opened:
            self._opened = True
            self._sweep()
        if self._askpass and not self._batch:
            await self._askpass.open()
        try:
            if await self._login.master.open(verify=True):
                if self._login.master.adopted:
                    await self._forwards.drop_leftovers(self._login.master)
                await self._learn_host()
        except BaseException as error:
            if isinstance(error, ConnectionFailed) and not isinstance(
                error, (AuthenticationFailed, HostKeyError)
            ):
                self._pin.missed()
            if self._askpass and not self._login.master.is_up:
                await self._askpass.close()
            raise
        await self._forwards.restore()

    async def open_node(self, node: str) -> None:
        """Connect to a node now; `run` and the like do so by themselves, `remote_shell` can't."""
        await self._node_master(node)

    async def is_alive(self) -> bool:
        return await self._login.master.check()

    async def wait_lost(self) -> str:
        """Wait until the connection to the login host, or one that carries a forward to a node, is
        lost.

        Returns the reason. `open` then restores what it can.
        """
        if not self._login.master.is_up:
            return await self._login.master.wait()
        return await first_loss(
            self._forwards.changed,
            lambda: [self._login.master.wait(), *self._forwards.carriers()],
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

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> MuxStream:
        return await (await self._ready(node)).sessions.open_stream(argv)

    async def forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        await self._ready(None)
        await self._forwards.add(forward, None if node is None else check_host(node))

    async def cancel_forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        await self._forwards.cancel(forward, node)

    def forward_route(self, forward: LocalForward, *, node: str | None = None) -> Route | None:
        """`login`, `node` (the laptop encrypts twice) or `chain` (each leg encrypts once);
        None if that forward is not in place."""
        return self._forwards.route(forward, node)

    def failed_forwards(self) -> dict[Key, TunnelkitError]:
        """Forwards that the last `open` could not put back, with the reason."""
        return self._forwards.failed()

    def remote_shell(self, *, node: str | None = None) -> list[str]:
        """See `base.Link.remote_shell`. For a node, `open_node` has to come first."""
        return [*self._command.session(self._control_path(node)), "-o", "LogLevel=ERROR"]

    def destination(self, node: str | None = None) -> str:
        return destination_words(node or self._options.login.destination)[-1]

    async def close(self) -> None:
        hosts = [*self._nodes.values(), self._login]
        await self._forwards.close()
        await asyncio.gather(*(host.sessions.close() for host in hosts))
        for host in hosts:  # the nodes first: they ride on the login's
            await host.master.close()
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
            (lambda: self._prepare_node(node)) if node else self._prepare_login,
            silence_limit_s=self._options.connect_timeout_s * hops + _SILENCE_S,
            auth_timeout_s=self._options.auth_timeout_s,
            upstream=self._login.master if node else None,
            notice=self._notice,
        )
        argv = self._command.session(master.control_path)
        limit = self._options.max_sessions
        return _Host(
            master, OpenSSHSessions(master, argv, name, directory=self._directory, limit=limit)
        )

    async def _ready(self, node: str | None) -> _Host:
        """A host with a live connection. Raises ConnectionFailed if there is none."""
        if not self._login.master.is_up:
            raise not_connected(self._options.login)
        if node is None:
            return self._login
        host = self._nodes.get(check_host(node))
        if host is None:
            host = self._nodes[node] = self._host(node)
        if await host.master.open() and host.master.adopted:
            await self._forwards.drop_leftovers(host.master)
        return host

    async def _node_master(self, node: str) -> ControlMaster:
        return (await self._ready(node)).master

    async def _prepare_login(self) -> tuple[list[str], Asker | None]:
        name = self._options.login.destination
        command = self._connecting()
        config = await effective_config(command.print_config(name), name)
        extra = [
            *self._pin.options(),
            *command.jump_option(),
            *cipher_options(config.ciphers),
            *await login_options(config, own=self._known_hosts),
        ]
        return command.master(self._control_path(None), name, extra=extra), self._asker(name)

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

    async def _prepare_node(self, node: str) -> tuple[list[str], Asker | None]:
        command = self._connecting()
        config = await effective_config(command.print_config(node), node)
        login = re.sub(r"[^A-Za-z0-9.-]", "-", self.destination())
        extra = [
            *command.through_master(self._control_path(None)),
            *cipher_options(config.ciphers),
            *await node_options(config, alias=f"{node}.via.{login}", own=self._known_hosts),
        ]
        return command.master(self._control_path(node), node, extra=extra), self._asker(node)

    def _connecting(self) -> SshCommand:
        """The ssh command of the next connection: one that may ask, or one in BatchMode."""
        return self._asking if self._attended() else self._command

    def _asker(self, name: str) -> Asker | None:
        return self._askpass.asker(name) if self._askpass and not self._batch else None

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
