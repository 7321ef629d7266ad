"""The interface of a link; the contract suite in tests/contract checks every link against it.

A link is the connection of one session to one cluster. It authenticates once, at `open`; all else
uses that connection. `node=None` means the login host, any other value a compute node. Where there
is no login host, callers always name a node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tunnelkit.config.schema import Settings
from tunnelkit.errors import TunnelkitError
from tunnelkit.model import Completed, LocalForward

#: Asks the user one question (password, one-time code, unknown host key) and returns the answer, or
#: None when nobody is there to answer. `echo` is False for secrets.
Prompter = Callable[[str, bool], Awaitable[str | None]]


class ByteStream(Protocol):
    """The stdin and stdout of a process at the far end, as one local socket.

    The holder owns it and must `close` it. `fileno()` is a connected,
    non-blocking stream socket: bytes written reach the far stdin, bytes read come
    from the far stdout, EOF means that the process or the link ended.
    """

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        ...

    async def wait(self) -> int:
        """Return the exit status once the far process or the link has ended."""
        ...

    def diagnosis(self) -> str:
        """Return the last lines of stderr so far, for an error message."""
        ...

    async def close(self) -> None:
        """End the process and close the socket. Idempotent."""
        ...


class Link(Protocol):
    """One authenticated connection to a cluster, and through it to its nodes."""

    @property
    def name(self) -> str:
        """The cluster's name in messages: the login host, or what stands in its place."""
        ...

    async def open(self) -> None:
        """Connect and authenticate. Raises ConnectionFailed or HostKeyError. Idempotent:
        a connection that a killed predecessor left behind is taken over, without a prompt.
        After a loss it also puts the forwards back; see `failed_forwards`."""
        ...

    async def open_node(self, node: str) -> None:
        """Connect to a node now. `run` and the like do so by themselves; only who uses
        `remote_shell` has to call it. Raises as `open`."""
        ...

    async def is_alive(self) -> bool:
        """Return True if the connection answers."""
        ...

    async def doubt(self) -> None:
        """Somebody heard nothing over this link for a while: end the connection if it is dead, and
        would not find that out soon by itself. Returns once that is known."""
        ...

    async def wait_lost(self) -> str:
        """Wait until the connection to the login host, or one that carries a forward to a node, is
        lost, or until it is time to try again what the last `open` could not put back.

        Returns the reason. `open` then restores what it can.
        """
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes = b"",
        timeout_s: float = 30.0,
    ) -> Completed:
        """Run one command to its end. The words of `argv` arrive exactly, whatever the login shell.

        Raises ConnectionFailed if the host can't be reached, TimeoutExpired on time out (the far
        process sees its stdin and stdout end, and is not killed). A command that fails is an exit
        code, not an error.
        """
        ...

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ByteStream:
        """Start a command and return its stdin and stdout as a stream."""
        ...

    async def forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        """Make 127.0.0.1:bind_port on this machine reach host:port as seen from `node`.

        Raises UsageError if the local port is taken, ConnectionFailed if the forward can't be made.
        """
        ...

    async def cancel_forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        """Close a forward. Does nothing if it is not open."""
        ...

    def forward_route(self, forward: LocalForward, *, node: str | None = None) -> str | None:
        """Return the route of an open forward, for `tk status`; None if it is not open."""
        ...

    def failed_forwards(self) -> dict[tuple[LocalForward, str | None], TunnelkitError]:
        """Return the forwards that the last `open` could not put back, with the reason."""
        ...

    def remote_shell(self, *, node: str | None = None) -> list[str]:
        """Return the argv of an ssh-like program (without the host) that rides on this link, for
        `rsync -e` and `sshfs -o ssh_command`; the host to name is `destination(node)`.

        Raises UsageError if this kind of link has no such program."""
        ...

    def destination(self, node: str | None = None) -> str:
        """Return the host name that goes with `remote_shell`, also used in messages."""
        ...

    async def close(self) -> None:
        """End every process, forward and connection of this link."""
        ...


@dataclass(frozen=True)
class LinkSetup:
    """The part of a link's setup that is the same for every kind of link.

    control_dir: a private directory for the link's sockets. prompter: asks the user; None: nobody
    is there. batch: True forbids all questions. attended: returns True while questions are
    allowed. asks_nodes: returns False while logins at nodes may ask nothing even then. notice:
    called with a message for the user. patient_logins: a file of this user's with the hosts whose
    logins wait for their user; None: each link finds out by itself. once: nobody opens the link a
    second time, so which of a name's hosts it led to need not be remembered.
    """

    control_dir: Path
    prompter: Prompter | None = None
    batch: bool = False
    attended: Callable[[], bool] = lambda: True
    asks_nodes: Callable[[], bool] = lambda: True
    notice: Callable[[str], None] | None = None
    patient_logins: Path | None = None
    once: bool = False


@dataclass(frozen=True)
class LinkKind:
    """One kind of link.

    name: its value of `[cluster] link`. make: returns a link that is not open yet; raises
    MissingProgram, or ConfigError if a setting that it needs is missing. suits: returns True if
    `link = "auto"` may choose it on this computer.
    """

    name: str
    make: Callable[[Settings, LinkSetup], Link]
    suits: Callable[[], bool] = lambda: True
