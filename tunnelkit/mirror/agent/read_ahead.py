"""Read slices of a batch in a thread while earlier ones are being sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tunnelkit.mirror.agent.path_header import Slice
from tunnelkit.mux.tasks import cancel_all

#: About this much waits in memory.
AHEAD_BYTES = 16 << 20


class ReadAhead:
    """Starts to read when constructed, in a running loop. Call `close` in any case."""

    def __init__(self, pieces: Iterator[Slice]) -> None:
        self._pieces = pieces
        self._ready: asyncio.Queue[Slice | Exception] = asyncio.Queue()
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._task = asyncio.create_task(self._read(), name="tk-mirror-read")

    async def next(self) -> Slice:
        """Return the next slice, up to the `last`. Raises what the reading raised."""
        found = await self._ready.get()
        if isinstance(found, Exception):
            raise found
        self._waiting_bytes -= len(found.data)
        self._room.set()
        return found

    async def close(self) -> None:
        """Stop reading. A read in progress in the thread is not awaited. Idempotent."""
        await cancel_all(self._task)

    async def _read(self) -> None:
        try:
            last = False
            while not last:
                piece = await asyncio.to_thread(next, self._pieces)
                last = piece.last
                self._waiting_bytes += len(piece.data)
                self._ready.put_nowait(piece)
                while self._waiting_bytes >= AHEAD_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            self._ready.put_nowait(error)
