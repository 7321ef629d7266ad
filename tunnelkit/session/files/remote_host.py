"""The mirror's access to a host, over the link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tunnelkit.link.base import Link
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.session.agent.exec_streams import ExecStreams


class LinkRemoteHost:
    """The login host (or a node) behind `remote_script.RemoteHost`.

    node: returns the node, None for the login host. by_agent: returns what runs commands by the
    node's agent, while that saves the link a stream for each; else None. ready: runs a command by
    something on the login host that waits for it, within some seconds; None if there is none."""

    def __init__(
        self,
        link: Link,
        node: Callable[[], str | None],
        by_agent: Callable[[], ExecStreams | None] = lambda: None,
        ready: Callable[[Command, float], Awaitable[Completed | None]] | None = None,
    ) -> None:
        self._ready = ready
        self._link = link
        self._node = node
        self._by_agent = by_agent

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        """Run a command there. Raises as `Link.run`."""
        agent = self._by_agent()
        if agent is not None:
            return await agent.complete(argv, stdin=stdin, timeout_s=timeout_s)
        if self._ready is not None and self._node() is None:
            done = await self._ready(Command(tuple(argv), stdin), timeout_s)
            if done is not None:
                return done
        return await self._link.run(argv, node=self._node(), stdin=stdin, timeout_s=timeout_s)

    def remote_shell(self) -> list[str]:
        """Return the argv of an ssh-like program that uses the link; see `Link.remote_shell`."""
        return self._link.remote_shell(node=self._node())

    def destination(self) -> str:
        """Return the name of the host, for messages."""
        return self._link.destination(self._node())
