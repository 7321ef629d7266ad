"""Saves overtake a big transfer: while it runs, small changes are sent in passes of their own.

What belongs to the big transfer waits for its end: its own paths, all above and below them, and
other big files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.mirror.agent.batch_reader import is_big
from tunnelkit.mirror.agent.channel import Fenced, MirrorChannel
from tunnelkit.mirror.api import MirrorHalted
from tunnelkit.mirror.context import PassResult, SyncContext
from tunnelkit.mirror.passes.agent_pass import AgentPass
from tunnelkit.mirror.passes.caller import PassCaller
from tunnelkit.mirror.passes.delete_guard import may_halt
from tunnelkit.mirror.passes.early_staging import is_bulk
from tunnelkit.mirror.passes.options import NOTHING_SPECIAL
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.remote.owner import Displaced
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.mirror.tree.scanner import Scan
from tunnelkit.mirror.watch.coalescer import DirtyPaths
from tunnelkit.mux.tasks import cancel_all, first_of

log = logging.getLogger("tunnelkit.mirror")
#: A channel that can't be used now is tried again after this.
_TRY_AGAIN_S = 1.0

_T = TypeVar("_T")
#: Scans these paths (blocking). Returns the scan, and the scanned paths (None: everything).
ScanPaths = Callable[[DirtyPaths], tuple[Scan, frozenset[str] | None]]


@dataclass(frozen=True, slots=True)
class _Ready:
    """Scanned changes: `fits` can be sent now, `late` are paths that can't."""

    scan: Scan
    fits: diff.Diff
    late: frozenset[str]


class Overtaking:
    """Small passes over `live` during one big transfer. `close` at its end.

    large: the paths of the big transfer. nests: it uses `live` too.
    scan: scans. is_usable: called before each pass; False: `live` can't be relied on now.
    lost: called after a pass that has lost the channel alone.
    """

    def __init__(
        self,
        ground: SyncContext,
        live: MirrorChannel,
        sizes: SizeWatch,
        caller: PassCaller,
        *,
        large: frozenset[str],
        nests: bool,
        scan: ScanPaths,
        is_usable: Callable[[], bool],
        lost: Callable[[], Awaitable[None]],
    ) -> None:
        self._ground = ground
        self._live = live
        self._sizes = sizes
        self._caller = caller
        self._large = large
        self._above = frozenset(above for path in large for above in parents(path))
        self._nests = nests
        self._scan_paths = scan
        self._is_usable = is_usable
        self._lost = lost
        #: changes that were taken and not sent: the pass after the big transfer must send them
        self.left = DirtyPaths()
        #: True if a pass was called for without a change, such as for a doubt: none was made
        self.pass_wanted = False
        self._preparing: asyncio.Task[_Ready | None] | None = None
        self._scanning: asyncio.Future[tuple[Scan, frozenset[str] | None]] | None = None
        self._ended = False

    async def during(self, work: Awaitable[_T]) -> _T:
        """Await a step of the big transfer, and send small changes meanwhile.

        Raises the error of `work`, and as `Syncer.run`.
        """
        step = asyncio.ensure_future(work)
        try:
            while not (self._ended or step.done()):
                await self._next(step)
            return await step
        finally:
            await cancel_all(step)

    async def _next(self, step: asyncio.Future[_T]) -> None:
        """Send what is ready, or wait for that or for the end of the step."""
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare(), name="tk-overtake")
        await first_of(step, self._preparing)
        if not self._preparing.done():
            return
        if not self._is_usable():
            await asyncio.wait([step], timeout=_TRY_AGAIN_S)
            return
        ready, self._preparing = self._preparing.result(), None
        if ready is not None:
            await self._send(ready)

    async def close(self) -> None:
        """End the scan that may be under way. What it has taken is in `left`."""
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            await cancel_all(preparing)
        if self._scanning is not None:
            await asyncio.wait([self._scanning])  # the next pass uses the same scanner

    async def _prepare(self) -> _Ready | None:
        """Wait for changes, and scan them. None: nothing can be sent yet."""
        await self._caller.changed()
        dirty = await self._caller.take()
        if not dirty:
            self.pass_wanted |= dirty is not None
            return None
        self.left = self.left.joined(dirty)
        try:
            self._scanning = asyncio.ensure_future(asyncio.to_thread(self._scan))
            scan, looked = await asyncio.shield(self._scanning)
        except (OSError, TunnelkitError) as error:
            log.debug("the scan during a big transfer: %s", error)
            self._ended = True  # the next pass reports it
            return None
        self._caller.scanned()
        late = await self._caller.git_began()
        if late is not None:
            self.left = self.left.joined(late)
            return None
        difference = diff.compare(self._ground.manifest.rows, scan.entries, only=looked)
        return _Ready(scan, *self._fit(difference))

    def _scan(self) -> tuple[Scan, frozenset[str] | None]:
        """Scan what is left (blocking). A later scan no longer finds what is below a path now."""
        scan, looked = self._scan_paths(self.left)
        if looked is None:
            self.left = self.left.joined(DirtyPaths(everything="scanned"))
        else:
            self.left = self.left.joined(DirtyPaths(looked))
        return scan, looked

    def _fit(self, difference: diff.Diff) -> tuple[diff.Diff, frozenset[str]]:
        """Return the part that may overtake, and the paths of the rest.

        A file may have been moved to one that must wait, so deletes don't overtake that one. Many
        deletes keep all else back: alone in their pass, moved files would count as deleted.
        """
        fits = diff.Diff()
        if not is_bulk(difference):
            fits.changed = {
                path: entry
                for path, entry in difference.changed.items()
                if not (is_big(entry) or self._concerns_large(path))
            }
        late = difference.changed.keys() - fits.changed.keys()
        if late or any(map(self._concerns_large, difference.absent)):
            late = late.union(difference.absent)
            if may_halt(len(difference.absent), self._ground.delete_limit):
                return diff.Diff(), frozenset(late.union(difference.changed))
        else:
            fits.absent = difference.absent
        return fits, frozenset(late)

    def _concerns_large(self, path: str) -> bool:
        return (
            path in self._large
            or path in self._above
            or any(above in self._large for above in parents(path))
        )

    async def _send(self, ready: _Ready) -> None:
        ground, difference = self._ground, ready.fits
        result = PassResult()
        if difference.changed or difference.absent:
            begin = time.monotonic()
            progress, ground.progress = ground.progress, None
            try:
                result = await self._pass(ready)
            except (MirrorHalted, ConnectionFailed) as error:
                if isinstance(error, (Displaced, Fenced)):
                    raise
                if isinstance(error, ConnectionFailed):
                    if self._nests:
                        raise
                    await self._lost()
                self._ended = True  # the next pass reports it
                return
            finally:
                ground.progress = progress
            self._caller.pending(self._large)
            self._caller.sent(result, time.monotonic() - begin)
        late = ready.late.union(result.failed, result.changing, result.conflicts)
        self.left = DirtyPaths(late)

    async def _pass(self, ready: _Ready) -> PassResult:
        def pending(paths: frozenset[str]) -> None:
            self._caller.pending(paths | self._large)

        one = AgentPass(self._ground, self._live, self._sizes, outlasts_outage=self._nests)
        return await one.run(ready.scan, ready.fits, NOTHING_SPECIAL, pending)
