"""Initial scan: reads the local tree while the connection is still being set up.

Login prompts and slow hosts leave time for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from tunnelkit.mirror.agent.path_header import ExpectedState
from tunnelkit.mirror.api import MirrorHalted
from tunnelkit.mirror.passes.prefetch import Prefetch
from tunnelkit.mirror.record.manifest import Manifest
from tunnelkit.mirror.remote.root import RemoteRoot
from tunnelkit.mirror.tree.filesystem import is_local
from tunnelkit.mirror.tree.scanner import Scan, Scanner
from tunnelkit.mux.tasks import cancel_all

#: From this many files, wait for an agent: it is faster than rsync.
MUCH_FILES = 200


class InitialScan:
    """One scan by `scanner`. Call `begin`, and `close` in any case.

    state_dir: directory with the manifests of what was ever sent.
    on_much: called to start an agent when many files will be sent for the first time.
    """

    def __init__(
        self, scanner: Scanner, state_dir: Path, on_much: Callable[[], Awaitable[None]]
    ) -> None:
        self.scanner = scanner
        self._state_dir = state_dir
        self._on_much = on_much
        #: True if nothing was ever sent, so that all must be sent
        self.is_first = False
        #: reader of the many files that were found for the first time, or None
        self.reading: Prefetch | None = None
        self._task: asyncio.Task[Scan | None] | None = None
        self._calling: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Start the scan in a thread."""
        self._task = asyncio.create_task(self._look(), name="tk-mirror-first-look")

    async def scan(self) -> Scan | None:
        """Return the scan, or None.

        None where a scan is so slow that only the first pass makes one (a network file system), or
        where it failed. In that case the first pass meets the same error.
        """
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def is_much(self) -> bool:
        """Return True if there are so many files that an agent is worth waiting for."""
        scan = await self.scan()
        return scan is not None and len(scan.entries) > MUCH_FILES

    async def hurry(self, preparing: asyncio.Task[RemoteRoot]) -> None:
        """Start an agent early if the first copy is big: it will wait for one."""
        if not await self.is_much() or self.is_first:
            return  # or the scan itself has asked for one
        if (await preparing).fresh:
            await self._on_much()

    async def close(self) -> None:
        """Cancel the scan, and discard it and what was read. Idempotent."""
        # The syncer knows this object for as long as it lives, and a scan is large.
        task, self._task = self._task, None
        await cancel_all(*(one for one in (task, self._calling) if one is not None))
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
                self._calling = asyncio.ensure_future(self._on_much())
                self.reading = Prefetch(self.scanner.root, scan, ExpectedState({}, {}))
                self.reading.begin(scan.entries)
            return scan
        return None
