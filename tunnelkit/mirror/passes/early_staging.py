"""What of an unfinished change can be sent already: files that are whole, and their directories.

It is on its way while git is still at work, or while we still look; nothing of it is to be seen
before the pass that publishes it has looked at everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from tunnelkit.mirror.agent.batch_reader import ExpectedState
from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.passes.agent_pass import AgentPass
from tunnelkit.mirror.passes.options import OnPending
from tunnelkit.mirror.passes.prefetch import Prefetch, ahead_of
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.tree.scanner import Found, Scan
from tunnelkit.mux.tasks import cancel_all

#: More than this at once goes by rsync.
LIVE_BATCH_BYTES = 256 << 20

_T = TypeVar("_T")


class EarlyStager:
    """Sends what a pass will publish. `take` it for that."""

    def __init__(self, ground: SyncContext, sizes: SizeWatch | None) -> None:
        self._ground = ground
        self._sizes = sizes
        self._staged: AgentPass | None = None

    def take(self) -> AgentPass | None:
        """What was sent so far, to be published or aborted by the caller."""
        staged, self._staged = self._staged, None
        return staged

    async def stage(self, live: MirrorChannel, scan: Scan, looked: Collection[str] | None) -> None:
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

    def reading(self, scan: Scan) -> Prefetch:
        """For what is found beyond this scan, while that is looked at."""
        ground = self._ground
        staged = self._staged.staged if self._staged else {}
        return Prefetch(
            ground.local_root,
            scan,
            ExpectedState(ground.manifest.rows, ground.own_digests()),
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
        """What `look` (blocking, in a thread) returns; what `reading` has read and what the look
        finds is on its way over what `live` returns before it has found all. Raises what the two
        raise, and as `stage`."""
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
            self._staged = AgentPass(self._ground, live, sizes=self._sizes)
        return self._staged


def is_bulk(difference: diff.Diff) -> bool:
    """Whether that is so much that rsync is the better way."""
    return sum(entry.size for entry in difference.changed.values()) > LIVE_BATCH_BYTES
