"""What of an unfinished change can be sent already: files that are whole, and their directories.

It is on its way while git is still at work, or while we still look; nothing of it is to be seen
before the pass that publishes it has looked at everything.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from tunnelkit.mirror import plan
from tunnelkit.mirror.bylive import LivePass
from tunnelkit.mirror.ground import Ground
from tunnelkit.mirror.live import LiveChannel
from tunnelkit.mirror.local import Outcome
from tunnelkit.mirror.manifest import Row
from tunnelkit.mirror.outgoing import Known, Slice, slices
from tunnelkit.mirror.scan import DIR, FILE, Entry, Found, Scan
from tunnelkit.mirror.sizes import SizeWatch
from tunnelkit.mirror.wishes import OnPending
from tunnelkit.mux.waiting import cancel_all

#: A file above this goes by rsync, which sends what changed in it.
LIVE_FILE_BYTES = 8 << 20
#: More than this at once goes by rsync.
LIVE_BATCH_BYTES = 256 << 20
#: Nor is more sent while we look: it may turn out to be much more.
_UNSEEN_BYTES = 64 << 20
#: So many paths are compared and read together.
_PATHS = 500
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

    async def stage(self, live: LiveChannel, scan: Scan, looked: Collection[str] | None) -> None:
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

    async def while_looking(
        self,
        live: Callable[[], Awaitable[LiveChannel | None]],
        scan: Scan,
        look: Callable[[Found], _T],
        *,
        before: Collection[str] = (),
        on_pending: OnPending,
    ) -> _T:
        """What `look` (blocking, in a thread) returns; what it finds is in `scan`, and on its way
        over what `live` returns before it has found all. before: paths of `scan` that are read
        before it looks. Raises what the two raise, and as `stage`.

        What is found is read in the same thread: two that look and read would only wait for each
        other, for Python's lock.
        """
        reading = _Reading(self._ground, scan, self._staged.staged if self._staged else {})
        looking = asyncio.ensure_future(asyncio.to_thread(reading.run, before, look))
        looking.add_done_callback(lambda _: reading.pieces.put_nowait(None))
        sending = asyncio.create_task(
            self._send(live, reading.pieces, on_pending), name="tk-mirror-ahead"
        )
        try:
            result = await looking
            await sending
        finally:
            await cancel_all(sending)
        return result

    async def _send(
        self,
        live: Callable[[], Awaitable[LiveChannel | None]],
        pieces: asyncio.Queue[Slice | None],
        on_pending: OnPending,
    ) -> None:
        channel = await live()
        if channel is None:
            return
        staged = self._open(channel)
        while (piece := await pieces.get()) is not None:
            await staged.add(piece, on_pending)

    def _open(self, live: LiveChannel) -> LivePass:
        if self._staged is None or self._staged.live is not live:
            self._staged = LivePass(self._ground, live, sizes=self._sizes)
        return self._staged


class _Reading:
    """Reads, in a thread, what a look finds. Made in a running loop. pieces: what was read; None
    comes last, from whoever owns this."""

    def __init__(self, ground: Ground, scan: Scan, staged: Mapping[str, Entry]) -> None:
        self.pieces: asyncio.Queue[Slice | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._root = ground.local_root
        self._known = Known(ground.manifest.rows, ground.tried)
        self._scan = scan
        self._staged = staged
        self._size_bytes = 0

    def run(self, before: Collection[str], look: Callable[[Found], _T]) -> _T:
        """Read these, then look, and read what that finds."""
        paths = iter(before)
        while some := list(itertools.islice(paths, _PATHS)):
            self._found(some)
        return look(self._found)

    def _found(self, paths: list[str]) -> None:
        if self._size_bytes > _UNSEEN_BYTES:
            return  # the pass itself reads what is left
        difference = ahead_of(self._known.rows, self._scan, paths, self._staged)
        for piece in slices(self._root, self._scan, difference, self._known, Outcome()):
            self._size_bytes += len(piece.data)
            piece.last = False
            self._loop.call_soon_threadsafe(self.pieces.put_nowait, piece)


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
