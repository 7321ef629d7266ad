"""The runs of a loop that has parts on other nodes: each begins when the session says so."""

import asyncio
from typing import NamedTuple, Optional


class DueEnd(NamedTuple):
    """The end of a run that has not begun on this node. failed: as one that has failed."""

    number: int
    reason: str
    failed: bool


class Turns:
    """The last run that may begin; later ones wait. free: nobody needs to say so."""

    def __init__(self, free: bool) -> None:
        self._free = free
        self._last = 0
        self._changed = asyncio.Event()
        self._due: Optional[DueEnd] = None

    def end_later(self, due: DueEnd) -> None:
        """Have a run ended as soon as it begins: on another node it has begun, and ended."""
        if not self._free:
            self._due = due

    def take_end(self, number: int) -> Optional[DueEnd]:
        """Return the end that is due for the run that begins now, if one is."""
        due, self._due = self._due, None
        return due if due is not None and due.number == number else None

    def begin(self, number: int) -> None:
        """Let the runs up to this number begin."""
        self._last = max(self._last, number)
        self._changed.set()

    async def wait(self, number: int) -> None:
        """Wait until this run may begin."""
        while not self._free and self._last < number:
            self._changed.clear()
            await self._changed.wait()
