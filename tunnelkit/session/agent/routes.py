"""Routes to an agent in a job, tried in order; the first that works is kept.

ssh          ssh from the laptop to the node, through the login host
ssh-login    the login host's ssh, for nodes that accept only hosts of the cluster
srun         the scheduler's command that runs something inside the job, if it has one
dial-in      the agent dials a port of the login host, if no other route works

Where the first route takes many round trips, another one may carry the wire until it is there
(`HeadStart`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tunnelkit.errors import ConnectionFailed, HostKeyError, TimeoutExpired, UnknownHostKey
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.link.shared.diagnosis import diagnose
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.remote_command import remote_command
from tunnelkit.session.agent.install import Installed
from tunnelkit.session.runtime.event_log import Record, unrecorded

_CONNECT_TIMEOUT_S = 10
#: ssh's own exit code if it can't connect.
_SSH_FAILED = 255
#: What `agent attach --wait` says once it has reached the agent (agent/links/bridge.py).
REACHED = b"tk-reached\n"
#: Limit for that, and for what login shells say before it.
_REACHED_S = 30.0
#: A stream whose output has ended tells its exit status within this time.
_ENDED_S = 5.0
_MOST_NOISE_BYTES = 64 * 1024


class Route(Protocol):
    """One route to the agent. `open` raises ConnectionFailed if the route does not work."""

    #: The route's name in `tk status`.
    name: str
    #: The route's name in messages, after "entering by ".
    title: str

    async def open(self) -> ByteStream:
        """Open a stream to `agent attach`. Raises ConnectionFailed, HostKeyError."""
        ...


def is_hard_stop(error: ConnectionFailed) -> bool:
    """True if no other route may be tried: a host key has changed, or can't be trusted."""
    return isinstance(error, HostKeyError) and not isinstance(error, UnknownHostKey)


class LinkRoute:
    """The link's own stream to the node, by default ssh from the laptop; it runs `argv` there."""

    def __init__(
        self, link: Link, node: str | None, argv: Sequence[str], *, name: str = "ssh"
    ) -> None:
        self.name = self.title = name
        self._link, self._node, self._argv = link, node, argv

    async def open(self) -> ByteStream:
        """See `Route.open`."""
        return await self._link.open_stream(self._argv, node=self._node)


class LoginSshRoute:
    """The login host's ssh to the node, with the login host's keys; it runs `argv` there.

    It never prompts. A node's first host key is accepted and stored in tk's own file. A changed
    host key raises HostKeyError.
    """

    name = "ssh-login"

    def __init__(self, link: Link, installed: Installed, node: str, argv: Sequence[str]) -> None:
        self.title = f"the ssh of {link.name}"
        self._link, self._node, self._argv = link, node, argv
        self._ssh = login_ssh(installed, node)
        self._known_hosts = f"{installed.base}/known_hosts"
        self._proven = False

    async def open(self) -> ByteStream:
        """See `Route.open`. Also raises HostKeyError."""
        if not self._proven:
            await self._try()
        return await self._link.open_stream([*self._ssh, remote_command(self._argv)])

    async def _try(self) -> None:
        """Connect once and run `true`: its exit status is known, a failed stream is just silent.

        Raises HostKeyError or ConnectionFailed.
        """
        where = f"{self._node} from {self._link.name}"
        try:
            done = await self._link.run([*self._ssh, "true"], timeout_s=3.0 * _CONNECT_TIMEOUT_S)
        except TimeoutExpired as error:
            raise _leads_nowhere(where, error.message, transient=True) from None
        if done.exit_code == 0:
            self._proven = True
            return
        said = done.error_text
        if "HOST IDENTIFICATION HAS CHANGED" in said or "host key" in said.lower():
            raise HostKeyError(
                f"the host key of {where} can't be trusted",
                cause=" ".join(said.replace("@", " ").split())[-300:],
                hint="if the node was reinstalled, remove its old key from "
                f"{self._known_hosts} on {self._link.name}",
            )
        lines = said.splitlines()
        why = lines[-1] if lines else f"exit status {done.exit_code}"
        # A node that is slow or busy now is tried again; one that refuses us is not.
        passing = done.exit_code == _SSH_FAILED and diagnose(self._node, said).transient
        raise _leads_nowhere(where, why, transient=passing)


def _leads_nowhere(where: str, why: str, *, transient: bool) -> ConnectionFailed:
    return ConnectionFailed(
        f"ssh does not lead to {where}",
        cause=why,
        hint="`tk doctor` checks whether nodes may be entered by ssh",
        transient=transient,
    )


def login_ssh(installed: Installed, node: str) -> list[str]:
    """Return the argv of the login host's ssh to `node`, without the remote command."""
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
    """The scheduler's command that runs something inside the job; `argv` is all of it."""

    name = title = "srun"

    def __init__(self, link: Link, argv: Sequence[str]) -> None:
        self._link, self._argv = link, argv

    async def open(self) -> ByteStream:
        """See `Route.open`."""
        return await self._link.open_stream(self._argv)


class ReverseRoute:
    """A port on the login host that the agent dials (agent/links/reverse_connect.py).

    The session runs `meet` on the login host; that process lives as long as the stream. It listens
    on one port, by TLS, with a certificate that the session makes for each stream. It accepts only
    a peer that proves that it can read the invitation (0600, in the shared home).
    """

    name = "dial-in"

    def __init__(self, link: Link, installed: Installed, name: str, node: str) -> None:
        self.title = f"a port of {link.name} that the agent dials"
        self._link = link
        self._argv = installed.argv("meet", invitation(installed, name), node)

    async def open(self) -> ByteStream:
        """See `Route.open`."""
        from tunnelkit.session.agent.tls_certificate import make_certificate

        made = make_certificate()
        stream = await self._link.open_stream(self._argv)
        told = json.dumps({"certificate": made.certificate, "key": made.key})
        with contextlib.suppress(OSError):  # it is gone: who reads the stream next learns why
            await write_fd(stream.fileno(), told.encode() + b"\n")
        return stream


def invitation(installed: Installed, name: str) -> str:
    """Return the path of the file from which the agent `name` reads the address to dial."""
    return f"{installed.jobs_dir}/{name}.meet"


@dataclass(frozen=True)
class HeadStart:
    """A quick way in, while the first route is still being made.

    name: of the route that leads in. enter: opens its stream. better: the first route, with an
    `attach` that says REACHED."""

    name: str
    enter: Callable[[], Awaitable[ByteStream]]
    better: Route


class Routes:
    """The routes to one agent. `open` uses the first that works.

    ways: the routes, in the order of the attempts.
    say: called with a message when a route fails. record: called with each route's outcome.
    """

    def __init__(
        self,
        link: Link,
        node: str | None,
        ways: Sequence[Route],
        say: Callable[[str], None],
        record: Record = unrecorded,
    ) -> None:
        self._link, self._node, self._say, self._record = link, node, say, record
        self._ways = list(ways)
        #: Name of the route that works; None before the first stream.
        self.route: str | None = None
        #: Cleared while `open_better` runs: another route than `route` may be the one that is kept.
        self.settled = asyncio.Event()
        self.settled.set()

    async def open(self) -> ByteStream:
        """Open a stream on the route that works. Raises ConnectionFailed or HostKeyError."""
        while True:
            way = self._ways[0]
            try:
                stream = await way.open()
            except ConnectionFailed as error:
                if is_hard_stop(error):
                    raise
                # If the login connection is lost, the failure says nothing about the node.
                proven = self.route == way.name
                if proven or len(self._ways) == 1 or not await self._link.is_alive():
                    raise
                self._give_up(way, error)
                continue
            self._keep(way.name, way.title)
            return stream

    async def enter(self, head: HeadStart) -> ByteStream:
        """Open a stream that leads to the agent by the quick way. Raises ConnectionFailed.

        Nothing is sent before the agent is there: a scheduler may start a step long after nobody
        waits for it, and a hello in its stdin would take the wire from the link that has it."""
        stream = await head.enter()
        try:
            if not await _reached(stream):
                raise _not_there(stream)
        except BaseException:
            await stream.close()
            raise
        return stream

    def entered(self, head: HeadStart) -> None:
        """Note that the quick way led to the agent."""
        if self.route is None:
            self.route = head.name
            self._record("route", f"{self._node} is reached by {head.name} at first")

    async def open_better(self, head: HeadStart) -> ByteStream | None:
        """Open a stream that leads to the agent by the first route; None if that does not work.

        A route that fails is given up, and one that does not lead to the agent though the quick way
        has. If that has not either, the agent may not be there yet. Raises HostKeyError if no other
        route may be used, ConnectionFailed if the login connection is lost."""
        if self._ways[0].name != head.better.name:
            return None  # it was given up
        self.settled.clear()
        astray = False
        try:
            stream = await head.better.open()
            try:
                if not await _reached(stream):
                    refused = await _is_refused(stream)
                    astray = not refused and self.route == head.name
                    if refused or astray:
                        raise _not_there(stream)
                    await stream.close()
                    return None
            except BaseException:
                await stream.close()
                raise
        except ConnectionFailed as error:
            if is_hard_stop(error) or len(self._ways) == 1 or not await self._link.is_alive():
                raise
            self._give_up(self._ways[0], error, astray=astray)
            return None
        else:
            self._keep(head.better.name, head.better.title)
            return stream
        finally:
            self.settled.set()

    def _keep(self, name: str, title: str) -> None:
        self.route = name
        self._record("route", f"{self._node} is reached by {title}")

    def _give_up(self, way: Route, error: ConnectionFailed, *, astray: bool = False) -> None:
        self._ways.pop(0)
        why, other = error.cause or error, self._ways[0].title
        failed = f"{self._node} by {way.title}: {error.one_line()}"
        self._record("route", failed, error=error)
        lost = f"{way.title} does not lead to the agent on {self._node}"
        text = lost if astray else f"{self._node} refuses {way.title}"
        self._say(f"{text} ({why}): entering by {other}")


async def _reached(stream: ByteStream) -> bool:
    """Wait until `attach --wait` has the agent; False if it ends without, or says too much."""
    said = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_REACHED_S):
            while REACHED not in said and len(said) <= _MOST_NOISE_BYTES:
                data = await read_fd(stream.fileno())
                if not data:
                    break
                said += data
    return REACHED in said


async def _is_refused(stream: ByteStream) -> bool:
    """Return True if ssh itself failed: then this route leads nowhere."""
    try:
        async with asyncio.timeout(_ENDED_S):
            return await stream.wait() == _SSH_FAILED
    except TimeoutError:
        return False  # it leads somewhere, where nothing answers yet


def _not_there(stream: ByteStream) -> ConnectionFailed:
    why = stream.diagnosis().splitlines()
    return ConnectionFailed(
        "the agent can't be reached there",
        cause=why[-1] if why else None,
        hint="`tk doctor` checks whether nodes may be entered by ssh",
    )
