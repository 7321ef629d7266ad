"""A port for each rank, beside the one for F5: for editors that open no child sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tunnelkit.debug.dap.editor_port import Editor, EditorPort
from tunnelkit.errors import DebugError

#: More ports than this nobody would use by hand.
_MAX_RANKS = 256

Serve = Callable[[Editor, int | None], Awaitable[None]]


class RankPorts:
    """127.0.0.1:`base`+rank for each rank but 0, which has `base` itself. `close` at the end."""

    def __init__(self, base: int, serve: Serve) -> None:
        self._base = base
        self._serve = serve
        self._ports: dict[int, EditorPort] = {}

    def open(self, rank: int, world_size: int = 0) -> None:
        """Listen for that rank, and for all of its world.

        No rank refuses an editor because it comes a moment later than another.
        """
        for one in {rank, *range(min(world_size, _MAX_RANKS))}:
            self._open(one)

    def _open(self, rank: int) -> None:
        """Listen for that rank, unless another program has the port."""
        port = self._base + rank
        if not 0 < rank < _MAX_RANKS or rank in self._ports or port > 65535:
            return
        door = EditorPort(port)
        try:
            door.open()
        except (DebugError, OSError):
            return

        async def serve(editor: Editor) -> None:
            await self._serve(editor, rank)

        door.serve(serve)
        self._ports[rank] = door

    def port_of(self, rank: int | None) -> int | None:
        """The port of that rank; None if it has none."""
        if rank == 0:
            return self._base
        return self._base + rank if rank in self._ports and rank is not None else None

    async def close(self) -> None:
        """Give all of them up."""
        doors, self._ports = list(self._ports.values()), {}
        await asyncio.gather(*(door.close() for door in doors))
