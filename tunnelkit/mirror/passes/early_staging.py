"""Early uploads: send complete files and their directories before a change is finished.

Files are staged while git is still at work or while the scan is still running. They stay invisible
until a pass has scanned everything and publishes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.agent.path_header import ExpectedState
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.passes.agent_pass import AgentPass
from tunnelkit.mirror.passes.options import OnPending
from tunnelkit.mirror.passes.prefetch import Prefetch, ahead_of
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.tree.scanner import Found, Scan
from tunnelkit.mux.tasks import cancel_all

#: rsync sends more than this at once.
LIVE_BATCH_BYTES = 256 << 20

_T = TypeVar("_T")


class EarlyStager:
    """Stages files that a pass will publish. The pass gets them by `take`."""

    def __init__(self, ground: SyncContext, sizes: SizeWatch) -> None:
        self._ground = ground
        self._sizes = sizes
        self._staged: AgentPass | None = None

    def take(self) -> AgentPass | None:
        """Return the staged files. The caller must publish or abort them."""
        staged, self._staged = self._staged, None
        return staged

    async def stage(self, live: MirrorChannel, scan: Scan, looked: Collection[str] | None) -> None:
        """Send the new and complete files of a scan.

        looked: the paths that were scanned. None: all may have changed.
        Raises ConnectionFailed; then nothing is staged.
        """
        staged, rows = self._open(live), self._ground.manifest.rows
        difference = await asyncio.to_thread(ahead_of, rows, scan, looked, staged.staged)
        if difference.changed and not is_bulk(difference):
            try:
                await staged.stage(scan, difference)
            except BaseException:
                self._staged = None
                raise

    def reading(self, scan: Scan) -> Prefetch:
        """Return a reader for the files that a scan adds to `scan` while it runs."""
        ground = self._ground
        staged = self._staged.staged if self._staged else {}
        return Prefetch(
            ground.local_root,
            scan,
            ExpectedState(ground.manifest.rows, ground.own_digests(), pulled=ground.pulled),
            staged,
        )

    async def while_looking(
        self,
        live: Callable[[], Awaitable[MirrorChannel | None]],
        reading: Prefetch,
        look: Callable[[Found], _T],
        *,
        on_pending: OnPending,
    ) -> _T:
        """Run a scan in a thread, send files meanwhile, and return the scan's result.

        live: returns the channel to send over, or None.
        reading: reads the files that `look` finds. They are sent before the scan has ended.
        look: the scan (blocking).
        Raises what `live` and `look` raise, and the errors of `stage`.
        """
        looking = asyncio.create_task(reading.look(look), name="tk-mirror-look")
        sending = asyncio.create_task(self._send(live, reading, on_pending), name="tk-mirror-ahead")
        try:
            result = await looking
            await sending
        finally:
            await cancel_all(looking, sending)
            await reading.close()
        return result

    async def _send(
        self,
        live: Callable[[], Awaitable[MirrorChannel | None]],
        reading: Prefetch,
        on_pending: OnPending,
    ) -> None:
        channel = await live()
        if channel is None:
            return
        staged = self._open(channel)
        while (piece := await reading.next()) is not None:
            await staged.add(piece, on_pending)

    def _open(self, live: MirrorChannel) -> AgentPass:
        if self._staged is None or self._staged.live is not live:
            self._staged = AgentPass(self._ground, live, self._sizes)
        return self._staged


def is_bulk(difference: diff.Diff) -> bool:
    """Return True if this is so much that rsync is faster."""
    return sum(entry.size for entry in difference.changed.values()) > LIVE_BATCH_BYTES
