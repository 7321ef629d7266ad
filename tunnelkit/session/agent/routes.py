"""The ways to an agent in a job, tried in order; the first that works is kept.

ssh          from the laptop to the node, through the login host
ssh-login    the login host's own ssh, where only hosts of the cluster are let in
srun         the scheduler's own way into the job, where it has one
dial-in      the agent dials a port of the login host, where no way leads into the job
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Protocol

from tunnelkit.errors import ConnectionFailed, HostKeyError
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.mux.fd_io import write_fd
from tunnelkit.remote_command import remote_command
from tunnelkit.session.agent.install import Installed

_CONNECT_TIMEOUT_S = 10


class Route(Protocol):
    """One way. `open` raises ConnectionFailed where it does not lead there."""

    #: As `tk status` calls it.
    name: str
    #: How it goes on with "entering by ".
    title: str

    async def open(self) -> ByteStream: ...


class SshRoute:
    """ssh from the laptop to the node. `argv` is run there."""

    name = title = "ssh"

    def __init__(self, link: Link, node: str | None, argv: Sequence[str]) -> None:
        self._link, self._node, self._argv = link, node, argv

    async def open(self) -> ByteStream:
        return await self._link.open_stream(self._argv, node=self._node)


class LoginSshRoute:
    """The login host's ssh to the node, with the keys that are there. `argv` is run there.

    Never asks anybody. A node's first host key is taken into a file of tk's own; a changed
    one is a hard stop.
    """

    name = "ssh-login"

    def __init__(self, link: Link, installed: Installed, node: str, argv: Sequence[str]) -> None:
        self.title = f"the ssh of {link.login}"
        self._link, self._node, self._argv = link, node, argv
        self._ssh = login_ssh(installed, node)
        self._known_hosts = f"{installed.base}/known_hosts"
        self._proven = False

    async def open(self) -> ByteStream:
        if not self._proven:
            await self._try()
        return await self._link.open_stream([*self._ssh, remote_command(self._argv)])

    async def _try(self) -> None:
        """One connection whose end is seen: a stream would only tell that it is silent."""
        done = await self._link.run([*self._ssh, "true"], timeout_s=3.0 * _CONNECT_TIMEOUT_S)
        if done.exit_code == 0:
            self._proven = True
            return
        said = done.error_text
        where = f"{self._node} from {self._link.login}"
        if "HOST IDENTIFICATION HAS CHANGED" in said or "host key" in said.lower():
            raise HostKeyError(
                f"the host key of {where} can't be trusted",
                cause=" ".join(said.replace("@", " ").split())[-300:],
                hint="if the node was set up anew, remove its old key from "
                f"{self._known_hosts} on {self._link.login}",
            )
        lines = said.splitlines()
        raise ConnectionFailed(
            f"ssh does not lead to {where}",
            cause=lines[-1] if lines else f"exit status {done.exit_code}",
            hint="`tk doctor` checks whether nodes may be entered by ssh",
        )


def login_ssh(installed: Installed, node: str) -> list[str]:
    """argv of the login host's ssh to `node`, without the remote command."""
    known = f'"{installed.base}/known_hosts" "{installed.home}/.ssh/known_hosts"'
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(_CONNECT_TIMEOUT_S),
        "ServerAliveInterval": "15",
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": known,
        "LogLevel": "ERROR",
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "RequestTTY": "no",
    }
    return ["ssh", *(f"-o{key}={value}" for key, value in options.items()), "--", node]


class SchedulerRoute:
    """The scheduler's command that runs something inside the job; `argv` is the whole of it."""

    name = title = "srun"

    def __init__(self, link: Link, argv: Sequence[str]) -> None:
        self._link, self._argv = link, argv

    async def open(self) -> ByteStream:
        return await self._link.open_stream(self._argv)


class ReverseRoute:
    """The agent in the job dials a process of ours on the login host
    (agent/links/reverse_connect.py).

    That process lives as long as the stream. It holds one port, where only who proves that
    they can read the invitation (0600, in the shared home) is let in, by TLS with a certificate
    that is made here for each stream.
    """

    name = "dial-in"

    def __init__(self, link: Link, installed: Installed, name: str, node: str) -> None:
        self.title = f"a port of {link.login} that the agent dials"
        self._link = link
        self._argv = installed.argv("meet", invitation(installed, name), node)

    async def open(self) -> ByteStream:
        from tunnelkit.session.agent.tls_certificate import make_certificate

        made = make_certificate()
        stream = await self._link.open_stream(self._argv)
        told = json.dumps({"certificate": made.certificate, "key": made.key})
        with contextlib.suppress(OSError):  # it is gone: who reads the stream next learns why
            await write_fd(stream.fileno(), told.encode() + b"\n")
        return stream


def invitation(installed: Installed, name: str) -> str:
    """The file in which the agent `name` is told where to dial."""
    return f"{installed.jobs_dir}/{name}.meet"


class Routes:
    """`ways` in the order in which they are tried. say: told when one does not lead there."""

    def __init__(
        self, link: Link, node: str | None, ways: Sequence[Route], say: Callable[[str], None]
    ) -> None:
        self._link, self._node, self._say = link, node, say
        self._ways = list(ways)
        #: The way that works; None before the first stream.
        self.route: str | None = None

    async def open(self) -> ByteStream:
        """A stream by the way that works. Raises ConnectionFailed, HostKeyError."""
        while True:
            way = self._ways[0]
            try:
                stream = await way.open()
            except HostKeyError:
                raise
            except ConnectionFailed as error:
                # A lost login connection says nothing about the node.
                if self.route or len(self._ways) == 1 or not await self._link.is_alive():
                    raise
                self._ways.pop(0)
                why, other = error.cause or error, self._ways[0].title
                self._say(f"{self._node} refuses {way.title} ({why}): entering by {other}")
                continue
            self.route = way.name
            return stream
