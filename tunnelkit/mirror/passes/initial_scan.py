"""What is here, looked at and read for a first copy before there is a connection: a person who
types a code, and hosts that are far, leave time for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from tunnelkit.mirror.agent.batch_reader import ExpectedState
from tunnelkit.mirror.api import MirrorHalted
from tunnelkit.mirror.passes.prefetch import Prefetch
from tunnelkit.mirror.record.manifest import Manifest
from tunnelkit.mirror.tree.filesystem import is_local
from tunnelkit.mirror.tree.scanner import Scan, Scanner
from tunnelkit.mux.tasks import cancel_all

#: For so many an agent, faster than rsync, is waited for.
MUCH_FILES = 200


class InitialScan:
    """One look at what `scanner` walks. `begin`, then `close` in any case. state_dir: where the
    manifests of what was ever sent from here are. on_much: have an agent come, since much was
    found for the first time."""

    def __init__(
        self,
        scanner: Scanner,
        state_dir: Path,
        on_much: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.scanner = scanner
        self._state_dir = state_dir
        self._on_much = on_much
        #: whether nothing was, so that all will have to be
        self.is_first = False
        #: much that was found for the first time is being read, or was
        self.reading: Prefetch | None = None
        self._task: asyncio.Task[Scan | None] | None = None
        self._calling: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Look, in a thread."""
        self._task = asyncio.create_task(self._look(), name="tk-mirror-first-look")

    async def scan(self) -> Scan | None:
        """What is here. None where a look costs so much that the first pass alone takes one, or
        where it failed; then that pass meets it as well."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def is_much(self) -> bool:
        """Whether so much is here that an agent is worth waiting for."""
        scan = await self.scan()
        return scan is not None and len(scan.entries) > MUCH_FILES

    async def close(self) -> None:
        """Let go of what was read. Idempotent."""
        await cancel_all(*(one for one in (self._task, self._calling) if one is not None))
        reading, self.reading = self.reading, None
        if reading is not None:
            await reading.close()

    async def _look(self) -> Scan | None:
        if not is_local(self.scanner.root):
            return None
        with contextlib.suppress(MirrorHalted):
            scan = await asyncio.to_thread(self.scanner.scan)
            self.is_first = not await asyncio.to_thread(Manifest.any_in, self._state_dir)
            if self.is_first and len(scan.entries) > MUCH_FILES:
                if self._on_much is not None:
                    self._calling = asyncio.ensure_future(self._on_much())
                self.reading = Prefetch(self.scanner.root, scan, ExpectedState({}, {}))
                self.reading.begin(scan.entries)
            return scan
        return None
