"""The other nodes on which a session has attached to processes, for the session after a kill."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from tunnelkit.errors import TunnelkitError
from tunnelkit.session.runtime.paths import write_private

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_MOST_NODES = 1024


class AttachedNodes:
    """A file in the session's state directory, a node a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, node: str) -> None:
        """Note a node. A disk that is full costs only the adoption after a kill."""
        names = dict.fromkeys([*self._read(), node])
        with contextlib.suppress(OSError):
            write_private(self._path, "".join(f"{one}\n" for one in names))

    async def adopt(self, adopt: Callable[[str], Awaitable[int]]) -> None:
        """Take over what a killed session left on these nodes; forget those that have nothing.

        adopt: takes over a node's loops and returns their number, or raises TunnelkitError.
        """
        names = self._read()
        with contextlib.suppress(OSError):
            self._path.unlink()
        for node in names:
            with contextlib.suppress(TunnelkitError):
                if await adopt(node):
                    self.add(node)

    def _read(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()[:_MOST_NODES]
        except (OSError, UnicodeDecodeError):
            return []
        return [line for line in lines if _NODE.fullmatch(line)]
