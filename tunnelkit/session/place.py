"""Where an editor's files are on the node, and whether one of them is the same there."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from tunnelkit.debug.conversation import Place
from tunnelkit.debug.view import Mirror as Roots
from tunnelkit.mirror.base import DigestCheck


def place_of(local_root: str, remote_root: str, check: DigestCheck | None) -> Place:
    """The place of a mirror; without `check` nothing is compared."""

    async def differs(path: str) -> str | None:
        try:
            relative = os.path.relpath(path, local_root)
            data = await asyncio.to_thread(Path(path).read_bytes)
        except (OSError, ValueError):
            return None
        if check is None or relative.startswith(os.pardir):
            return None
        name = Path(relative).as_posix()
        if await check({name: hashlib.sha256(data).hexdigest()}):
            return "this file is not the same on the node: tk sync"
        return None

    return Place(Roots(local_root, remote_root), differs)
