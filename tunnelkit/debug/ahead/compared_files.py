"""The comparison of an editor's files with the node's, begun before it sets breakpoints in them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tunnelkit.debug.ahead.habits import Habits
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.mux.tasks import cancel_all

_MOST = 16


class ComparedAhead:
    """The files of one editor's session; `close` it with that. Each early answer is used once."""

    def __init__(self, place: SourceFiles, habits: Habits) -> None:
        self.place = SourceFiles(place.mirror, self._differs)
        self._compare = place.differs
        self._habits = habits
        self._before: Iterable[str] = sorted(habits.files)[:_MOST]
        self._used: set[str] = set()
        self._early: dict[str, asyncio.Task[str | None]] = {}

    def begin(self) -> None:
        """Compare the files of the last session's breakpoints. Idempotent."""
        before, self._before = self._before, ()
        for path in before:
            if path not in self._used:
                self._early[path] = asyncio.create_task(self._asked(path))

    async def _asked(self, path: str) -> str | None:
        return await self._compare(path)

    async def _differs(self, path: str) -> str | None:
        self._used.add(path)
        early = self._early.pop(path, None)
        if early is None:
            return await self._compare(path)
        try:
            return await early
        finally:
            await cancel_all(early)

    async def close(self) -> None:
        """End what is under way, and keep the files for the next session."""
        if self._used:
            self._habits.files = self._used
        early, self._early = self._early, {}
        await cancel_all(*early.values())
