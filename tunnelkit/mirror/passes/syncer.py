"""One pass: look at what may have changed here, decide the way, have it done.

Changes and the first copy go over the live channel where there is an agent (agent_pass.py); big
files, very much at once, and everything where there is none, by rsync (bulk_pass.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tunnelkit.errors import ConnectionFailed, TimeoutExpired
from tunnelkit.mirror.agent.channel import Fenced, MirrorChannel
from tunnelkit.mirror.agent.channel_provider import ChannelProvider
from tunnelkit.mirror.agent.verify import ping, verify
from tunnelkit.mirror.api import FileAgent
from tunnelkit.mirror.context import PassResult, SyncContext
from tunnelkit.mirror.passes import local_changes
from tunnelkit.mirror.passes.agent_pass import AgentPass
from tunnelkit.mirror.passes.bulk_pass import BulkPass
from tunnelkit.mirror.passes.early_staging import EarlyStager, is_bulk
from tunnelkit.mirror.passes.initial_scan import MUCH_FILES, InitialScan
from tunnelkit.mirror.passes.options import OnPending, PassOptions
from tunnelkit.mirror.passes.prefetch import LIVE_FILE_BYTES
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.remote.owner import Displaced
from tunnelkit.mirror.transfer.base import Transfer
from tunnelkit.mirror.tree.name_collisions import set_apart
from tunnelkit.mirror.tree.scanner import DECIDING, FILE, Found, Scan, Scanner
from tunnelkit.mirror.watch.coalescer import DirtyPaths

#: A look that was taken so lately is enough for a first copy, and another one only in its way: what
#: has changed since is the next pass's affair, which comes at once.
_TRUSTED_NS = 10_000_000_000
#: Git may work again and again; each time what it leaves is looked at.
_MORE_LOOKS = 3
#: A directory that is moved away under a publication has come to rest by then.
_DIFFER_S = 0.2
#: After a transfer that was broken off: when what it may have left on its way is looked for. In
#: between, for so long, with each pass.
_STRAGGLERS_S = (2.0, 10.0, 30.0)
_STRAGGLING_S = 10.0
#: For so much longer what was deleted is looked at again, should it come back.
_LATER_S = 25.0

_T = TypeVar("_T")
Again = Callable[[], Awaitable[DirtyPaths | None]]


async def _never() -> None:
    return None


class Syncer:
    """Makes one remote root equal to one local root. One pass at a time; `close` at the end.

    agent: the agent of this moment, or None. agent_soon: returns once there is one, or in a
    moment. wake: called when another pass should be made without any event here. first: what was
    looked at, and may have been read, already.
    """

    def __init__(
        self,
        ground: SyncContext,
        scanner: Scanner,
        rsync: Transfer,
        *,
        agent: Callable[[], FileAgent | None] = lambda: None,
        agent_soon: Callable[[], Awaitable[None]] | None = None,
        sizes: SizeWatch | None = None,
        wake: Callable[[], None] = lambda: None,
        first: InitialScan | None = None,
    ) -> None:
        self.ground = ground
        self._scanner = scanner
        self._rsync = rsync
        self._lane = ChannelProvider(ground, agent, self._differ)
        self._wake = wake
        self._first = first
        #: the root was made just now, and nothing of ours was in it yet
        self._untouched = ground.fresh
        #: what was read back was not what was sent: all is to be looked at there
        self._differs = False
        #: the agent that has looked at all that was sent: another one does so first
        self._verified_by = ""
        self._timer: asyncio.TimerHandle | None = None
        #: looks for what a broken transfer may still bring, and until when each pass does so
        self._stragglers: list[asyncio.TimerHandle] = []
        self._agent_soon = agent_soon
        self._sizes = sizes
        #: what earlier passes looked at and could not bring to an end; None: everything
        self._owed: frozenset[str] | None = None
        self._ahead = EarlyStager(ground, sizes)
        #: somebody else has the target now; for good: two who push in turns would be worse
        self._displaced: Displaced | None = None
        self.last_scan: Scan | None = None
        #: device and inode of the local root: another one, mounted or moved there, is no edit
        self._root: tuple[int, int] | None = None
        #: paths known to need sending: for the status, and for the message of a timeout
        self.pending: frozenset[str] = frozenset()

    async def run(
        self,
        dirty: DirtyPaths,
        wishes: PassOptions,
        *,
        again: Again = _never,
        on_pending: OnPending = lambda paths: None,
    ) -> PassResult:
        """One pass. dirty: what may have changed since the last one. again: asked after a look
        what has to be looked at once more. on_pending: told what there is to do, before it is
        done. Raises MirrorHalted, ConnectionFailed, MirrorError,
        MissingProgram, TimeoutExpired; what was not brought to an end is taken up again."""
        if self._displaced is not None:
            raise self._displaced.with_traceback(None)
        try:
            return await self._run(dirty, wishes, again, on_pending)
        except Displaced as error:
            self._displaced = error
            raise
        except Fenced:
            await self._lane.close()
            self.ground.owe(None)
            raise
        finally:
            self.ground.progress = None

    async def _run(
        self, dirty: DirtyPaths, wishes: PassOptions, again: Again, on_pending: OnPending
    ) -> PassResult:
        ground = self.ground
        owed, self._owed = self._owed, None  # until it is known better
        live, before = await self._lane.live(), self.last_scan
        look, trusted = partial(self._look, dirty, owed), False
        if self._is_little(dirty, owed):
            scan, looked = look()  # quicker than a thread is
        elif before is None or not self._goes_ahead(live, before, wishes):
            scan, looked = await asyncio.to_thread(look)
        else:
            first = self._is_first(before)
            trusted = first and time.time_ns() - before.started_ns < _TRUSTED_NS
            (scan, looked), live = await self._look_and_send(
                before, (lambda found: (before, None)) if trusted else look, on_pending, first=first
            )
            if first and live is not None:
                wishes = replace(wishes, repair=False)  # looked at before anything was sent
        for _ in range(_MORE_LOOKS):
            late = await again()
            if late is None:
                break
            scan, looked = await asyncio.to_thread(self._look, late, looked)
        out = PassResult(scanned=scan is not before, scan_s=scan.duration_s)
        for path, why in scan.unreadable.items():
            out.failed[path] = f"can't be read: {why}"
        if live is None and self._is_much(scan, looked):
            live = await self._live_soon()
        if live is not None and (wishes.repair or self._is_doubted(live)):
            changed_there = await self._verify(live)
            wishes = replace(wishes, repair=False, force=wishes.force | changed_there)
        elif live is None and self._is_straggling():
            wishes, self._differs = replace(wishes, repair=True), False
        only = self._only(looked, wishes)
        self._owed = only
        difference = diff.compare(ground.manifest.rows, scan.entries, force=wishes.force, only=only)
        set_apart(difference.changed, scan.entries, ground.folding, out.failed)
        self.pending = frozenset(difference.changed)
        try:
            await self._do(live, scan, difference, looked, wishes, out, on_pending)
        except BaseException:
            await self._lane.close()  # what is staged there is not to be published later
            raise
        ground.conflicts = frozenset(out.conflicts)
        self.pending = self._owed = frozenset({*out.failed, *out.changing})
        if trusted:
            self._owed = None
            self._wake()
        return out

    def _is_doubted(self, live: MirrorChannel) -> bool:
        return self._is_straggling() or live.instance != self._verified_by

    def _is_straggling(self) -> bool:
        """Whether something may have come there after what was sent since."""
        return self._differs or time.monotonic() < self.ground.straggling_until - _LATER_S

    async def _verify(self, live: MirrorChannel) -> frozenset[str]:
        """What is not there as it was sent. Raises as `verify`."""
        differs, self._differs = self._differs, False
        try:
            found = await verify(live.agent, self.ground)
        except BaseException:
            self._differs |= differs
            raise
        self._verified_by = live.instance
        return found

    async def stage_ahead(self, dirty: DirtyPaths) -> None:
        """Send what has changed so far, to be published by the next pass together with what is
        yet to come. Raises as `run`; nothing is lost by that."""
        owed, self._owed = self._owed, None
        live = await self._lane.live()
        if live is None or self.ground.folding or owed is None or self._displaced is not None:
            return  # the pass looks at everything
        scan, looked = await asyncio.to_thread(self._look, dirty, owed)
        self._owed = looked
        await self._sent_ahead(self._ahead.stage(live, scan, looked))

    async def _sent_ahead(self, work: Awaitable[_T]) -> _T:
        """Await it; where it fails, what the agent has so far is not to be published."""
        try:
            return await work
        except BaseException:
            await self._lane.close()
            raise

    def _goes_ahead(self, live: MirrorChannel | None, before: Scan, wishes: PassOptions) -> bool:
        """Whether what a look finds may be sent before it is over: nothing but what is here says
        what is to be sent, and how."""
        ground = self.ground
        if wishes.force or wishes.ours or ground.conflicts or ground.folding:
            return False
        if self._is_first(before):
            return True
        return live is not None and not (wishes.repair or self._is_doubted(live))

    def _is_first(self, before: Scan) -> bool:
        """Whether much was found, and nothing sent ever."""
        ground = self.ground
        return ground.fresh and not ground.manifest.rows and self._is_much(before, None)

    def _differ(self) -> None:
        """Somebody was there in the very moment: look again once that is over."""
        self._differs = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DIFFER_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._wake()

    def _is_little(self, dirty: DirtyPaths, owed: frozenset[str] | None) -> bool:
        """Whether there are only a few known files to look at, all of them in memory."""
        scan = self.last_scan
        if not self.ground.quick or scan is None or owed is None or dirty.everything is not None:
            return False
        paths = dirty.paths | owed
        return len(paths) <= local_changes.LITTLE_FILES and all(
            (entry := scan.entries.get(path)) is not None
            and entry.kind == FILE
            and path.rpartition("/")[2] not in DECIDING
            for path in paths
        )

    def _look(
        self, dirty: DirtyPaths, owed: frozenset[str] | None, found: Found | None = None
    ) -> tuple[Scan, frozenset[str] | None]:
        """Blocking: what is here, and which paths were looked at; None: all of them."""
        scan, root = self.last_scan, _identity(self.ground.local_root)
        if scan is None or owed is None or dirty.everything is not None or root != self._root:
            self.last_scan = scan = self._scanner.scan()
            self._root = root
            return scan, None
        self.last_scan, looked = self._scanner.update(scan, dirty.paths | owed, found)
        return self.last_scan, frozenset(looked)

    def _is_much(self, scan: Scan, looked: frozenset[str] | None) -> bool:
        """Whether so much may have to be sent that an agent, faster than rsync, is waited for."""
        if self._agent_soon is None or looked is not None:
            return False
        rows = self.ground.manifest.rows
        return sum(path not in rows for path in scan.entries) > MUCH_FILES

    async def _look_and_send(
        self, before: Scan, look: Callable[[Found], _T], on_pending: OnPending, *, first: bool
    ) -> tuple[_T, MirrorChannel | None]:
        """What `look` returns, and the channel over which what is new was sent meanwhile. first:
        nothing was sent ever, and all of `before` is new."""
        earlier, self._first = self._first, None
        read = earlier.reading if first and earlier is not None else None
        reading = read if read is not None else self._ahead.reading(before)
        if first:
            self.ground.progress = Progress.of(before.entries, before.entries)
            if read is None:
                reading.begin(before.entries)
        live = self._first_live if first else self._lane.live
        result = await self._sent_ahead(
            self._ahead.while_looking(live, reading, look, on_pending=on_pending)
        )
        return result, await self._lane.live()

    async def _live_soon(self) -> MirrorChannel | None:
        """The channel, in a moment if there is none yet."""
        if self._agent_soon is not None:
            await self._agent_soon()
        return await self._lane.live()

    async def _first_live(self) -> MirrorChannel | None:
        """What an earlier attempt may have left goes before anything is sent."""
        live, untouched = await self._live_soon(), self._untouched
        if live is not None:
            if not untouched:
                await verify(live.agent, self.ground)
            self._verified_by = live.instance
        self._untouched = False
        return live

    def _only(self, looked: frozenset[str] | None, wishes: PassOptions) -> frozenset[str] | None:
        """The paths that may not be settled; None: any."""
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
        out: PassResult,
        on_pending: OnPending,
    ) -> None:
        ground = self.ground
        again = frozenset(path for path in ground.conflicts if path in ground.manifest.rows)
        shell = BulkPass(ground, self._rsync, self._sizes)
        ahead = self._ahead.take()
        if live is None or ground.folding or (not ground.fresh and is_bulk(difference)):
            if ahead is not None:
                ahead.abort()
            run = shell.run(scan, difference, replace(wishes, again=again), out, on_pending)
            await self._by_shell(run)
            return
        by_live = ahead
        if by_live is None or by_live.live is not live:
            by_live = AgentPass(ground, live, sizes=self._sizes)
        big = {path for path in difference.changed if _is_big(scan, path)}
        big_again = frozenset(path for path in again if _is_big(scan, path))
        small, large = diff.split(difference, big)
        doubted = diff.split_doubted(small, ground.manifest.rows, looked, wishes.force)
        passes: list[tuple[AgentPass | BulkPass, diff.Diff, PassOptions]]
        passes = [(by_live, small, replace(wishes, again=again - big_again))]
        if big or big_again:
            passes.append((shell, large, replace(wishes, again=big_again)))
            if small.absent:  # a renamed file is never missing: what is new goes first
                passes.reverse()
        if doubted.changed:
            passes.append((by_live, doubted, replace(wishes, again=frozenset())))
        for one, part, wanted in passes:
            run = one.run(scan, part, wanted, out, on_pending)
            await (self._by_shell(run) if one is shell else run)

    async def _by_shell(self, run: Coroutine[Any, Any, None]) -> None:
        """Await a pass by rsync. Where its link breaks, the rsync there may go on for a while, with
        what has reached it: over what is sent since."""
        try:
            await run
        except (ConnectionFailed, TimeoutExpired, asyncio.CancelledError):
            loop = asyncio.get_running_loop()
            self.ground.straggling_until = time.monotonic() + _STRAGGLING_S + _LATER_S
            for timer in self._stragglers:
                timer.cancel()
            self._stragglers = [
                loop.call_later(s, self._look_for_stragglers) for s in _STRAGGLERS_S
            ]
            raise

    def _look_for_stragglers(self) -> None:
        self._differs = True
        self._wake()

    @property
    def can_verify(self) -> bool:
        """Whether there is an agent to ask: one that costs the login host nothing."""
        return self._lane.node is not None

    async def ping(self) -> bool:
        """Make sure that the node lives and sees the root; a round trip. False: there is no
        live channel to it now. Raises MirrorHalted, MirrorError, TunnelkitError."""
        node = self._lane.node
        if node is None:
            return False
        await ping(node, self.ground)
        return True

    async def proofs_in(self) -> None:
        """Return once what was sent over the live channel was read back there, or won't be."""
        await self._lane.proofs_in()

    async def close(self) -> None:
        """Let go of the agent. Idempotent."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for timer in self._stragglers:
            timer.cancel()
        await self._lane.close()

    def directories(self) -> Collection[str]:
        """Those that are mirrored, or were looked into and left out: "" or "a/b/"."""
        return self.last_scan.rules if self.last_scan is not None else ()

    def known(self, path: str) -> bool:
        """Whether this relative path is one that was there at the last look. In any thread."""
        return self.last_scan is not None and path in self.last_scan.entries

    def interesting(self, path: str) -> bool:
        """Whether an event at this absolute path may matter. Called in any thread."""
        return local_changes.interesting(self.ground.local_root, self.last_scan, path)

    def wanted(self, path: str) -> bool:
        """The same of a directory, and what is in it."""
        return local_changes.interesting(self.ground.local_root, self.last_scan, path, is_dir=True)


def _identity(directory: str) -> tuple[int, int] | None:
    try:
        info = os.stat(directory)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _is_big(scan: Scan, path: str) -> bool:
    entry = scan.entries.get(path)
    return entry is not None and entry.kind == FILE and entry.size > LIVE_FILE_BYTES
