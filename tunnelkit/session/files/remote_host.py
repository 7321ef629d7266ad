"""The mirror's access to a host, over the link."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tunnelkit.link.base import Link
from tunnelkit.model import Completed


class LinkRemoteHost:
    """The login host (or a node) behind `remote_script.RemoteHost`.

    node: returns the node, None for the login host."""

    def __init__(self, link: Link, node: Callable[[], str | None]) -> None:
        self._link = link
        self._node = node

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        """Run a command there. Raises as `Link.run`."""
        return await self._link.run(argv, node=self._node(), stdin=stdin, timeout_s=timeout_s)

    def remote_shell(self) -> list[str]:
        """Return the argv of an ssh-like program that uses the link; see `Link.remote_shell`."""
        return self._link.remote_shell(node=self._node())

    def destination(self) -> str:
        """Return the name of the host, for messages."""
        return self._link.destination(self._node())
