"""One pass: scan what may have changed on the laptop, choose how to send it, send it.

Changes and the first copy use the agent's live channel (agent_pass.py). rsync (bulk_pass.py) sends
big files, very much at once, and everything if there is no agent; tar only the latter, as it has no
deltas, and can't go on after a lost link. Saves overtake what takes long (overtaking.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tunnelkit.mirror.agent.batch_reader import is_big
from tunnelkit.mirror.agent.channel import Fenced, MirrorChannel
from tunnelkit.mirror.agent.channel_provider import ChannelProvider
from tunnelkit.mirror.api import MirrorHalted, MirrorHost
from tunnelkit.mirror.context import PassResult, SyncContext
from tunnelkit.mirror.passes import local_changes
from tunnelkit.mirror.passes.agent_pass import AgentPass
from tunnelkit.mirror.passes.bulk_pass import BulkPass
from tunnelkit.mirror.passes.caller import PassCaller
from tunnelkit.mirror.passes.early_staging import EarlyStager, is_bulk
from tunnelkit.mirror.passes.initial_scan import MUCH_FILES, InitialScan
from tunnelkit.mirror.passes.options import During, OnPending, PassOptions, awaited
from tunnelkit.mirror.passes.overtaking import Overtaking
from tunnelkit.mirror.passes.remote_doubts import RemoteDoubts
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.remote.owner import Displaced
from tunnelkit.mirror.transfer.base import Transfer
from tunnelkit.mirror.tree.name_collisions import set_apart
from tunnelkit.mirror.tree.scanner import Found, Scan, Scanner
from tunnelkit.mirror.watch.coalescer import DirtyPaths
from tunnelkit.mirror.watch.event_source import identity

#: A scan younger than this is enough for a first copy, and another one would only delay it. The
#: next pass follows at once and finds later changes.
_TRUSTED_NS = 10_000_000_000
#: Git may start again and again. Each time the result is scanned, up to this limit.
_MORE_LOOKS = 3

_T = TypeVar("_T")


class Syncer:
    """Makes one remote root equal to one local root. One pass at a time; `close` at the end.

    wake: called when another pass is needed without an event on the laptop.
    first: the initial scan, which may have read files already.
    """

    def __init__(
        self,
        ground: SyncContext,
        scanner: Scanner,
        rsync: Transfer,
        host: MirrorHost,
        *,
        sizes: SizeWatch,
        wake: Callable[[], None],
        first: InitialScan,
    ) -> None:
        self.ground = ground
        self._scanner = scanner
        self._rsync = rsync
        self._doubts = RemoteDoubts(ground, wake)
        self.channels = ChannelProvider(ground, host.file_agent, self._doubts.differ)
        self._wake = wake
        self._first: InitialScan | None = first
        #: True if tk has just made the root, and has sent nothing yet
        self._untouched = ground.fresh
        self._agent_soon = host.file_agent_soon
        self._sizes = sizes
        #: paths that earlier passes scanned and could not finish; None: everything
        self._owed: frozenset[str] | None = None
        #: changes that came during the big transfer of this pass, and were not sent
        self._left = DirtyPaths()
        self._ahead = EarlyStager(ground, sizes)
        #: why the last pass was halted. Final if another mirror has the target: two mirrors that
        #: push in turns would be worse
        self._halted: MirrorHalted | None = None
        self.last_scan: Scan | None = None
        #: device and inode of the local root: another one, mounted or moved there, is no edit
        self._root: tuple[int, int] | None = None
        #: paths known to need sending: for the status, and for the message of a timeout
        self.pending: frozenset[str] = frozenset()

    async def run(self, dirty: DirtyPaths, wishes: PassOptions, caller: PassCaller) -> PassResult:
        """Run one pass.

        dirty: what may have changed since the last pass.
        Raises MirrorHalted, ConnectionFailed, MirrorError, MissingProgram or TimeoutExpired. The
        next pass then does the unfinished work.
        """
        if isinstance(self._halted, Displaced):
            raise self._halted.with_traceback(None)
        try:
            result = await self._run(dirty, wishes, caller)
            self._halted = None
            return result
        except MirrorHalted as error:
            self._halted = error
            raise
        except Fenced:
            await self.channels.close()
            self.ground.owe(None)
            raise
        finally:
            self.ground.progress = None

    async def _run(self, dirty: DirtyPaths, wishes: PassOptions, caller: PassCaller) -> PassResult:
        ground = self.ground
        owed, self._owed = self._owed, None  # if this pass fails early: everything
        live, before = await self.channels.live(), self.last_scan
        look, trusted = partial(self._look, dirty, owed), False
        if self._is_little(dirty, owed):
            scan, looked = look()  # quicker than a thread
        elif before is None or not self._goes_ahead(live, before, wishes):
            scan, looked = await asyncio.to_thread(look)
        else:
            first = self._is_first(before)
            trusted = first and time.time_ns() - before.started_ns < _TRUSTED_NS
            found = (lambda found: (before, None)) if trusted else look
            ahead = self._look_and_send(before, found, caller.pending, first=first)
            (scan, looked), live = await ahead
            if first and live is not None:
                wishes = replace(wishes, repair=False)  # checked before anything was sent
        for _ in range(_MORE_LOOKS):
            late = await caller.git_began()
            if late is None:
                break
            scan, looked = await asyncio.to_thread(self._look, late, looked)
        unreadable = {path: f"can't be read: {why}" for path, why in scan.unreadable.items()}
        result = PassResult(scanned=scan is not before, scan_s=scan.duration_s, failed=unreadable)
        if live is None and self._is_much(scan, looked):
            live = await self._live_soon()
        if live is not None and (wishes.repair or self._doubts.concern(live)):
            changed_there = await self._doubts.verify(live)
            wishes = replace(wishes, repair=False, force=wishes.force | changed_there)
        elif live is None and self._doubts.take():
            wishes = replace(wishes, repair=True)
        only = self._only(looked, wishes)
        self._owed = only
        difference = diff.compare(ground.manifest.rows, scan.entries, force=wishes.force, only=only)
        await self._doubts.leave_removed(scan, difference.changed, wishes.ours)
        result.failed |= set_apart(difference.changed, scan.entries, ground.folding)
        self.pending = frozenset(difference.changed)
        try:
            result.add(await self._do(live, scan, difference, looked, wishes, caller))
        except BaseException:
            await self.channels.close()  # the agent must not publish later what it has staged
            self._owe_left()
            raise
        ground.conflicts = frozenset(result.conflicts)
        self.pending = self._owed = frozenset({*result.failed, *result.changing})
        self._owe_left()
        if trusted:
            self._owed = None
            self._wake()
        return result

    async def stage_ahead(self, dirty: DirtyPaths) -> None:
        """Send what has changed so far; the next pass publishes it with later changes.

        Raises as `run`. Nothing is lost then: the next pass sends it.
        """
        owed, self._owed = self._owed, None
        live = await self.channels.live()
        if live is None or self.ground.folding or owed is None or self._halted is not None:
            return  # the pass scans everything
        scan, looked = await asyncio.to_thread(self._look, dirty, owed)
        self._owed = looked
        await self._sent_ahead(self._ahead.stage(live, scan, looked))

    async def _sent_ahead(self, work: Awaitable[_T]) -> _T:
        """Await early staging. If it fails, close the channel, so the agent discards the files."""
        try:
            return await work
        except BaseException:
            await self.channels.close()
            raise

    def _goes_ahead(self, live: MirrorChannel | None, before: Scan, wishes: PassOptions) -> bool:
        """Return True if a pass may send found files before the scan has ended.

        Then only the local files decide what is sent, and how.
        """
        ground = self.ground
        if wishes.force or wishes.ours or ground.conflicts or ground.folding:
            return False
        if self._is_first(before):
            return True
        return live is not None and not (wishes.repair or self._doubts.concern(live))

    def _is_first(self, before: Scan) -> bool:
        """Return True if many files were found, and none was ever sent."""
        return self.ground.fresh and not self.ground.manifest.rows and self._is_much(before, None)

    def _is_little(self, dirty: DirtyPaths, owed: frozenset[str] | None) -> bool:
        """Return True if there are only a few known files to scan, all of them in memory."""
        scan = self.last_scan
        if not self.ground.quick or scan is None or owed is None or dirty.everything is not None:
            return False
        return local_changes.are_few_known(scan, dirty.paths | owed)

    def _look(
        self, dirty: DirtyPaths, owed: frozenset[str] | None, found: Found | None = None
    ) -> tuple[Scan, frozenset[str] | None]:
        """Scan (blocking). Return the scan and the scanned paths, or None for all paths."""
        scan, root = self.last_scan, identity(self.ground.local_root)
        if scan is None or owed is None or dirty.everything is not None or root != self._root:
            self.last_scan = scan = self._scanner.scan()
            self._root = root
            return scan, None
        self.last_scan, looked = self._scanner.update(scan, dirty.paths | owed, found)
        return self.last_scan, frozenset(looked)

    def _is_much(self, scan: Scan, looked: frozenset[str] | None) -> bool:
        """Return True if so many files are new that the pass waits for an agent."""
        if looked is not None:
            return False
        rows = self.ground.manifest.rows
        return sum(path not in rows for path in scan.entries) > MUCH_FILES

    async def _look_and_send(
        self, before: Scan, look: Callable[[Found], _T], on_pending: OnPending, *, first: bool
    ) -> tuple[_T, MirrorChannel | None]:
        """Run `look`, and send what is new meanwhile. Return its result and the channel.

        first: nothing was ever sent, and all of `before` is new.
        """
        earlier, self._first = self._first, None
        read = earlier.reading if first and earlier is not None else None
        reading = read if read is not None else self._ahead.reading(before)
        if first:
            self.ground.progress = Progress.of(before.entries, before.entries)
            if read is None:
                reading.begin(before.entries)
        live = self._first_live if first else self.channels.live
        result = await self._sent_ahead(
            self._ahead.while_looking(live, reading, look, on_pending=on_pending)
        )
        return result, await self.channels.live()

    async def _live_soon(self) -> MirrorChannel | None:
        """Return the channel. Wait a moment for an agent if there is none yet."""
        await self._agent_soon()
        return await self.channels.live()

    async def _first_live(self) -> MirrorChannel | None:
        """Return the channel, after removing what an earlier attempt may have left."""
        live, untouched = await self._live_soon(), self._untouched
        if live is not None:
            await self._doubts.begin(live, untouched=untouched)
        self._untouched = False
        return live

    def _only(self, looked: frozenset[str] | None, wishes: PassOptions) -> frozenset[str] | None:
        """Return the paths that may not be settled, or None for all paths."""
        if looked is None or wishes.repair:
            return None
        return looked.union(
            self.ground.manifest.unsettled, self.ground.conflicts, wishes.force, wishes.ours
        )

    async def _do(
        self,
        live: MirrorChannel | None,
        scan: Scan,
        difference: diff.Diff,
        looked: frozenset[str] | None,
        wishes: PassOptions,
        caller: PassCaller,
    ) -> PassResult:
        ground = self.ground
        again = frozenset(path for path in ground.conflicts if path in ground.manifest.rows)
        ahead = self._ahead.take()
        by_rsync = self._rsync.sends_deltas
        much = by_rsync and not ground.fresh and is_bulk(difference)
        if live is None or ground.folding or much:
            if ahead is not None:
                ahead.abort()
            bulk = BulkPass(ground, self._rsync, self._sizes)
            wanted = replace(wishes, again=again)
            return await self._do_large(bulk, live, scan, difference, wanted, caller)
        by_live = ahead if ahead and ahead.live is live else AgentPass(ground, live, self._sizes)
        big = {path for path, entry in difference.changed.items() if is_big(entry)}
        big_again = frozenset(path for path in again if is_big(scan.entries.get(path)))
        small, large = diff.split(difference, big)
        doubted = diff.split_doubted(small, ground.manifest.rows, looked, wishes.force)
        later: frozenset[str] = frozenset()
        passes: list[tuple[AgentPass | BulkPass, diff.Diff, PassOptions]]
        passes = [(by_live, small, replace(wishes, again=again - big_again))]
        if big or big_again:
            way = BulkPass(ground, self._rsync, self._sizes) if by_rsync else by_live
            passes.append((way, large, replace(wishes, again=big_again)))
            if small.absent:  # send new files first: a renamed file is never missing
                passes.reverse()
                by_live.abort()  # what is staged belongs to the small files
                diff.move_parents(small, large)
                later = again.union(small.changed, small.absent)
        if doubted.changed:
            passes.append((by_live, doubted, replace(wishes, again=frozenset())))
        result, begin = PassResult(), time.monotonic()
        try:
            for one, part, wanted in passes:
                if part is large:
                    run = self._do_large(one, live, scan, part, wanted, caller, later)
                else:
                    run = one.run(scan, part, wanted, caller.pending)
                result.add(await run)
        except Exception:
            caller.sent(result, time.monotonic() - begin)  # the next pass finds nothing to do there
            raise
        return result

    async def _do_large(
        self,
        one: AgentPass | BulkPass,
        live: MirrorChannel | None,
        scan: Scan,
        difference: diff.Diff,
        wishes: PassOptions,
        caller: PassCaller,
        later: frozenset[str] = frozenset(),
    ) -> PassResult:
        """Send what takes long, and small changes meanwhile. later: paths of the next part."""
        nests = isinstance(one, AgentPass)
        paths = later.union(difference.changed, difference.absent, wishes.again)
        overtaking = self._overtaking(live, paths, wishes, caller, nests=nests)
        during: During = overtaking.during if overtaking is not None else awaited
        run = one.run(scan, difference, wishes, caller.pending, during)
        try:
            return await (run if nests else self._doubts.by_shell(run))
        finally:
            if overtaking is not None:
                await overtaking.close()
                self._left = overtaking.left
                if overtaking.left or overtaking.pass_wanted:
                    self._wake()

    def _overtaking(
        self,
        live: MirrorChannel | None,
        large: frozenset[str],
        wishes: PassOptions,
        caller: PassCaller,
        *,
        nests: bool,
    ) -> Overtaking | None:
        ground = self.ground
        if live is None or ground.fresh or ground.folding or wishes.repair:
            return None
        if nests and not live.nests:  # an agent of an earlier version
            return None
        return Overtaking(
            ground,
            live,
            self._sizes,
            caller,
            large=large,
            nests=nests,
            scan=lambda dirty: self._look(dirty, frozenset()),
            is_usable=lambda: live.is_usable and not self._doubts.concern(live),
            lost=self.channels.close,
        )

    def _owe_left(self) -> None:
        """Have the next pass scan the changes that could not overtake."""
        left, self._left = self._left, DirtyPaths()
        if left.everything is not None:
            self._owed = None
        elif self._owed is not None:
            self._owed |= left.paths

    async def close(self) -> None:
        """Close the channel to the agent. Idempotent."""
        self._doubts.close()
        await self.channels.close()

    def directories(self) -> Collection[str]:
        """Return the directories that are mirrored or were scanned and ignored: "" or "a/b/"."""
        return self.last_scan.rules if self.last_scan is not None else ()

    def known(self, path: str) -> bool:
        """Return True if the last scan found this relative path (any thread)."""
        return self.last_scan is not None and path in self.last_scan.entries

    def interesting(self, path: str) -> bool:
        """Return True if an event at this absolute path may matter (any thread)."""
        return local_changes.interesting(self.ground.local_root, self.last_scan, path)

    def wanted(self, path: str) -> bool:
        """Return True if events in this directory may matter (absolute path, any thread)."""
        return local_changes.interesting(self.ground.local_root, self.last_scan, path, is_dir=True)
