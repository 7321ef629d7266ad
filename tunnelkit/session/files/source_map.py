"""Map of an editor's files to the node, and a check if a file is the same there."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.mirror.api import DigestCheck
from tunnelkit.mirror.explain import relative_to_root


class SourceRoot(Protocol):
    """A mirrored root; `remote_root` is empty before its mirror has started."""

    @property
    def local_root(self) -> str:
        """The directory on the laptop."""
        ...

    @property
    def remote_root(self) -> str:
        """The directory on the cluster."""
        ...


def place_of(
    roots: Sequence[SourceRoot], check: Callable[[str], DigestCheck | None]
) -> SourceFiles:
    """Return the map of these roots, the project's first.

    check: returns for a remote root the check by the node; None: nothing is compared.
    """
    known = [root for root in roots if root.remote_root]

    async def differs(path: str) -> str | None:
        for root in known:
            relative = await asyncio.to_thread(relative_to_root, root.local_root, path)
            asks = check(root.remote_root) if relative is not None else None
            if relative is None or asks is None:
                continue
            try:
                data = await asyncio.to_thread(Path(path).read_bytes)
            except (OSError, ValueError):
                return None
            if await asks({Path(relative).as_posix(): hashlib.sha256(data).hexdigest()}):
                return "this file is not the same on the node: tk sync"
        return None

    first, *more = (MappedRoots(root.local_root, root.remote_root) for root in known)
    return SourceFiles(first.with_also(*more), differs)
