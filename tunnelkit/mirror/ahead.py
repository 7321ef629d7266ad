"""What of an unfinished change can be sent already: files that are whole, and their directories.

It is on its way while git is still at work, or while we still look; nothing of it is to be seen
before the pass that publishes it has looked at everything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tunnelkit.mirror import plan
from tunnelkit.mirror.bylive import LivePass
from tunnelkit.mirror.ground import Ground
from tunnelkit.mirror.live import LiveChannel
from tunnelkit.mirror.local import Outcome
from tunnelkit.mirror.manifest import Row
from tunnelkit.mirror.outgoing import Known, Slice, slices
from tunnelkit.mirror.readahead import AHEAD_BYTES
from tunnelkit.mirror.scan import DIR, FILE, Entry, Found, Scan
from tunnelkit.mirror.sizes import SizeWatch
from tunnelkit.mux.waiting import cancel_all

#: A file above this goes by rsync, which sends what changed in it.
LIVE_FILE_BYTES = 8 << 20
#: More than this at once goes by rsync.
LIVE_BATCH_BYTES = 256 << 20
#: Nor is more sent while we look: it may turn out to be much more.
_UNSEEN_BYTES = 64 << 20
#: A file that is so old is not being written any more; and its time stamps tell.
_SETTLED_NS = 100_000_000

_T = TypeVar("_T")


class Ahead:
    """Sends what a pass will publish. `take` it for that."""

    def __init__(self, ground: Ground, sizes: SizeWatch | None) -> None:
        self._ground = ground
        self._sizes = sizes
        self._staged: LivePass | None = None

    def take(self) -> LivePass | None:
        """What was sent so far, to be published or aborted by the caller."""
        staged, self._staged = self._staged, None
        return staged

    async def stage(
        self, live: LiveChannel, scan: Scan, looked: Collection[str] | None
    ) -> LivePass:
        """Send what is new and whole of what was looked at; None: any. Raises ConnectionFailed,
        and then nothing is staged."""
        staged, rows = self._open(live), self._ground.manifest.rows
        difference = await asyncio.to_thread(ahead_of, rows, scan, looked, staged.staged)
        if difference.changed and not is_bulk(difference):
            try:
                await staged.stage(scan, difference)
            except BaseException:
                self._staged = None
                raise
        return staged

    async def while_looking(self, live: LiveChannel, scan: Scan, look: Callable[[Found], _T]) -> _T:
        """What `look` (blocking, in a thread) returns; what it finds is in `scan`, and on its way
        before it has found all. Raises what it raises, and as `stage`.

        What is found is read in the same thread: two that look and read would only wait for each
        other, for Python's lock.
        """
        loop, staged = asyncio.get_running_loop(), self._open(live)
        known = Known(self._ground.manifest.rows, self._ground.tried)
        before = staged.staged
        pieces: asyncio.Queue[Slice | None] = asyncio.Queue()
        read_bytes = 0

        def found(paths: list[str]) -> None:
            nonlocal read_bytes
            if read_bytes > _UNSEEN_BYTES or read_bytes - staged.staged_bytes > AHEAD_BYTES:
                return  # the pass itself reads what is left
            difference = ahead_of(known.rows, scan, paths, before)
            for piece in slices(self._ground.local_root, scan, difference, known, Outcome()):
                read_bytes += len(piece.data)
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        looking = asyncio.ensure_future(asyncio.to_thread(look, found))
        looking.add_done_callback(lambda _: pieces.put_nowait(None))
        sending = asyncio.create_task(self._send(staged, pieces), name="tk-mirror-ahead")
        try:
            result = await looking
            await sending
        finally:
            await cancel_all(sending)
        return result

    async def _send(self, staged: LivePass, pieces: asyncio.Queue[Slice | None]) -> None:
        while (piece := await pieces.get()) is not None:
            await staged.add(piece)

    def _open(self, live: LiveChannel) -> LivePass:
        if self._staged is None or self._staged.live is not live:
            self._staged = LivePass(self._ground, live, sizes=self._sizes)
        return self._staged


def is_bulk(difference: plan.Difference) -> bool:
    """Whether that is so much that rsync is the better way."""
    return sum(entry.size for entry in difference.changed.values()) > LIVE_BATCH_BYTES


def ahead_of(
    rows: Mapping[str, Row],
    scan: Scan,
    looked: Collection[str] | None,
    staged: Mapping[str, Entry],
) -> plan.Difference:
    """What to stage now. looked: paths that may have changed, None: any; staged: what was
    staged before, and as what. Changes of kind, links and deletes wait for the end."""
    horizon_ns = time.time_ns() - _SETTLED_NS
    difference = plan.compare(rows, scan.entries, only=looked)
    wanted = plan.Difference()
    for path, entry in difference.changed.items():
        row = rows.get(path)
        if row is not None and row.entry.kind != entry.kind:
            continue
        is_new_dir = entry.kind == DIR and row is None
        is_whole = entry.kind == FILE and entry.ctime_ns < horizon_ns
        if staged.get(path) != entry and (
            is_new_dir or (is_whole and entry.size <= LIVE_FILE_BYTES)
        ):
            wanted.changed[path] = entry
    return wanted
