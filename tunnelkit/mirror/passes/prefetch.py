"""Read files before it is known what a pass will publish.

Used while the scan is running, or while there is no connection yet.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tunnelkit.mirror.agent.batch_reader import is_big, slices
from tunnelkit.mirror.agent.path_header import ExpectedState, Slice
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry, Found, Scan
from tunnelkit.mux.tasks import cancel_all

#: Read at most this much ahead: the change may turn out to be much bigger. All of it may wait in
#: memory.
_UNSEEN_BYTES = 64 << 20
#: Number of paths that are compared and read together.
_PATHS = 500
#: A file unchanged for this long is not being written any more, and its time stamps are reliable.
_SETTLED_NS = 100_000_000

_T = TypeVar("_T")


class Prefetch:
    """Reads the new and complete files of `scan` in a thread.

    Use it in one event loop, and always call `close`.
    staged: the entries that were already sent, by path.
    """

    def __init__(
        self, root: str, scan: Scan, known: ExpectedState, staged: Mapping[str, Entry] | None = None
    ) -> None:
        self._root = root
        self._scan = scan
        self._known = known
        self._staged = staged or {}
        self._pieces: asyncio.Queue[Slice | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._size_bytes = 0
        self._closed = False

    def begin(self, paths: Collection[str]) -> None:
        """Start to read these paths of the scan."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(
            asyncio.to_thread(self._read, paths), name="tk-mirror-read"
        )

    async def look(self, look: Callable[[Found], _T]) -> _T:
        """Run `look` (blocking) in a thread, read the files that it finds, return its result.

        Files found by `look` are read after those of `begin`. Raises what `look` raises. The scan's
        thread reads the files itself: two threads would only wait for each other because of
        Python's lock (GIL).
        """
        self._loop = asyncio.get_running_loop()
        try:
            if self._task is not None:
                await asyncio.wait([self._task])
            return await asyncio.to_thread(look, self._found)
        finally:
            self._loop.call_soon(self._pieces.put_nowait, None)

    async def next(self) -> Slice | None:
        """Return the next slice in reading order, or None after the end of the scan."""
        return await self._pieces.get()

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        self._closed = True
        if self._task is not None:
            await cancel_all(self._task)

    def _read(self, paths: Collection[str]) -> None:
        left = iter(paths)
        while some := list(itertools.islice(left, _PATHS)):
            self._found(some)

    def _found(self, paths: list[str]) -> None:
        if self._size_bytes > _UNSEEN_BYTES or self._closed:
            return  # the pass itself reads what is left
        assert self._loop is not None
        difference = ahead_of(self._known.rows, self._scan, paths, self._staged)
        for piece in slices(self._root, self._scan, difference, self._known):
            self._size_bytes += len(piece.data)
            piece.last = False
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)


def ahead_of(
    rows: Mapping[str, ManifestEntry],
    scan: Scan,
    looked: Collection[str] | None,
    staged: Mapping[str, Entry],
) -> diff.Diff:
    """Return what to stage now.

    looked: paths that may have changed. None: all may have.
    staged: the entries that were already staged, by path.
    Changes of kind, links and deletes wait for the pass.
    """
    horizon_ns = time.time_ns() - _SETTLED_NS
    difference = diff.compare(rows, scan.entries, only=looked)
    wanted = diff.Diff()
    for path, entry in difference.changed.items():
        row = rows.get(path)
        if row is not None and row.entry.kind != entry.kind:
            continue
        is_new_dir = entry.kind == DIR and row is None
        is_whole = entry.kind == FILE and entry.ctime_ns < horizon_ns
        if staged.get(path) != entry and (is_new_dir or (is_whole and not is_big(entry))):
            wanted.changed[path] = entry
    return wanted
