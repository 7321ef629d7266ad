"""The one task that pushes: woken by events, requests and time.

All others only post requests to it. So there is one push at a time, and a caller that
gives up (or is cancelled) never interrupts a transfer that others wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tunnelkit.errors import ConnectionFailed, MirrorError, TimeoutExpired, TunnelkitError
from tunnelkit.mirror.api import (
    MirrorHalted,
    MirrorHost,
    MirrorState,
    MirrorStatus,
    PassRecord,
    SyncReport,
)
from tunnelkit.mirror.context import PassResult
from tunnelkit.mirror.passes.content_recheck import ContentRecheck
from tunnelkit.mirror.passes.options import NOTHING_SPECIAL, PassOptions
from tunnelkit.mirror.passes.syncer import Syncer
from tunnelkit.mirror.record.manifest import Manifest
from tunnelkit.mirror.remote.edits import cannot_send, conflict_error
from tunnelkit.mirror.watch.coalescer import DirtyPaths
from tunnelkit.mirror.watch.missed_changes import MissedChanges
from tunnelkit.mirror.watch.watcher import Watcher
from tunnelkit.mux.tasks import cancel_all

log = logging.getLogger("tunnelkit.mirror")
_RESCAN_S = 120.0  # events are hints: scan anyway
_VERIFY_S = 300.0  # check that the sent files are still there
_FLUSH_S = 0.25  # if events need longer to arrive, a scan is made instead
_AHEAD_S = 0.1  # interval of checks while git is working
_POLL_S = 2.0  # where there are no events
_RETRY_FAILED_S = (15.0, 30.0, 60.0, 120.0)  # pause after one file could not be written
#: While the user is asked. Files that come back are events, but not those of a mounted directory.
_HALTED_S = (2.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_CHANGING_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # a file is written while it is sent
_SHOWN_PATHS = 20


@dataclass(slots=True, eq=False)
class Request:
    """A request for one pass that starts after it.

    partial_ok: complete after one pass even if some files could not be sent. done: set by the
    worker only.
    """

    done: asyncio.Future[SyncReport]
    wishes: PassOptions
    partial_ok: bool
    report: SyncReport = field(default_factory=SyncReport)


class PushWorker:
    """Runs passes until cancelled. Owned by Mirror, which runs `run` as its task.

    name: of the mirror's root, for `host`.
    """

    def __init__(
        self,
        syncer: Syncer,
        manifest: Manifest,
        watcher: Watcher,
        host: MirrorHost,
        name: str,
        *,
        wake: asyncio.Event,
    ) -> None:
        self._syncer = syncer
        self._manifest = manifest
        self._watcher = watcher
        #: the scan whose directories are watched; the watcher has begun with the first one
        self._widened_for = syncer.last_scan
        self._sweep = MissedChanges(syncer.ground.local_root)
        self._reread = ContentRecheck(syncer.ground.local_root)
        self._wake = wake
        self._host = host
        self._name = name
        self._requests: list[Request] = []
        #: those for which the pass under way was asked
        self._taken: list[Request] = []
        self._urgent = False
        self._failures = 0
        self._unsettled = 0
        self._unsent = 0
        self._halts = 0
        self._next_at = 0.0
        self._scan_at = 0.0
        self._reread_at = time.monotonic() + _RESCAN_S
        self._verify_at = time.monotonic() + _VERIFY_S
        self.status = MirrorStatus(MirrorState.STARTING)
        #: paths that the last pass could not write, with the reason
        self.failed: dict[str, str] = {}
        #: why the last pass failed, None after one that did not
        self.error: TunnelkitError | None = None

    def post(self, wishes: PassOptions = NOTHING_SPECIAL, *, partial_ok: bool = False) -> Request:
        """Request a pass now, regardless of the back-off."""
        done: asyncio.Future[SyncReport] = asyncio.get_running_loop().create_future()
        request = Request(done, wishes, partial_ok)
        self._requests.append(request)
        self._urgent = True
        self._wake.set()
        return request

    async def first(self, request: Request) -> None:
        """Wait for the first copy, without limit, but not through the back-off of a dead link.

        Raises the error of the pass.
        """
        while not request.done.done():
            await asyncio.wait([request.done], timeout=0.2)
            if not request.done.done() and self.error is not None:
                request.done.cancel()
                raise self.error
        # Halted: the mirror starts all the same, or nobody could confirm; the status shows it.
        with contextlib.suppress(MirrorHalted):
            request.done.result()

    async def run(self) -> None:
        """Run pass after pass, until cancelled."""
        while True:
            await self._until_due()
            while not await self._watcher.settle(_AHEAD_S):
                await self._stage_ahead()
            await self._pass()
            if not self._failures and time.monotonic() >= self._reread_at:
                await self._read_again()

    def close(self) -> None:
        """Fail the requests that are left. Call after `run` has ended."""
        self._reject(self._requests, MirrorError("the mirror was stopped", hint="tk up"))
        self._requests = []
        self._set(MirrorState.STOPPED)

    async def _until_due(self) -> None:
        while not self._urgent:
            left_s = self._next_at - time.monotonic()
            if left_s <= 0:
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                return
            self._wake.clear()
            if self._failures == 0 and not self._urgent:
                return

    async def _stage_ahead(self) -> None:
        """Send what git has written while it is still working; all of it is published at once."""
        try:
            await self._syncer.stage_ahead(self._watcher.take())
        except Exception as error:
            log.debug("staging ahead: %s", error)  # the pass will report it

    async def _read_again(self) -> None:
        """Read files again in a quiet moment: lstat does not show every change."""
        self._reread_at = time.monotonic() + _RESCAN_S
        rows = dict(self._manifest.rows)
        found = await asyncio.to_thread(self._reread.differing, rows, self._wake.is_set)
        if found:
            self.post(PassOptions(force=found), partial_ok=True)

    async def _pass(self) -> None:
        self._urgent = False
        self._wake.clear()
        requests = [request for request in self._requests if not request.done.done()]
        self._requests = requests
        taken = self._taken = list(requests)
        begin = time.monotonic()
        try:
            wishes = self._wishes(taken)
            dirty = await self._dirty(asked=bool(taken))
            try:
                outcome = await self._syncer.run(dirty, wishes, self)
            finally:
                self.scanned()
        except MirrorHalted as error:
            self.error = error
            self._failures = 0  # events are looked at
            self._retry(MirrorState.HALTED, error, _step(_HALTED_S, self._halts))
            self._halts += 1
            self._finish(taken, error)
        except TunnelkitError as error:
            self.error = error
            self._back_off(error)
            if not isinstance(error, (ConnectionFailed, TimeoutExpired)):
                self._finish(taken, error)
            # else: the link may come back before the caller's time-out
        except Exception as error:
            # A defect or a local disk error must not end the mirror in silence.
            log.exception("a pass failed")
            wrapped = MirrorError(
                "the mirror failed",
                cause=f"{type(error).__name__}: {error}",
                transient=True,
                hint="it starts again; if that happens often, please report it: tk bugreport",
            )
            self.error = wrapped
            self._back_off(wrapped)
            self._finish(taken, wrapped)
        else:
            self.error = None
            self.sent(outcome, time.monotonic() - begin)
            self._settle(taken, outcome, wishes)

    def _wishes(self, taken: list[Request]) -> PassOptions:
        # Only by the node's agent: this costs the login host nothing.
        by_node = self._syncer.channels.node is not None
        verifies = by_node and time.monotonic() >= self._verify_at
        if not (taken or verifies):
            return NOTHING_SPECIAL
        wanted = [request.wishes for request in taken]
        return PassOptions.together([*wanted, PassOptions(repair=verifies)])

    async def _dirty(self, *, asked: bool) -> DirtyPaths:
        """Return the paths to scan. asked: a barrier must not miss a change."""
        flushed, swept = await self._vouched() if asked else (True, DirtyPaths())
        dirty = self._watcher.take()
        if not self._watcher.alive():
            return DirtyPaths(everything="polling")
        if not flushed:
            return DirtyPaths(everything="events are late")
        if time.monotonic() >= self._scan_at:
            return DirtyPaths(everything="events are only hints")
        return dirty.joined(swept)

    async def _vouched(self) -> tuple[bool, DirtyPaths]:
        """Return if all earlier events have arrived, and the paths that changed without one.

        Both are checked side by side.
        """
        scan = self._syncer.last_scan
        if scan is None or not self._watcher.alive() or time.monotonic() >= self._scan_at:
            return await self._watcher.flush(_FLUSH_S), DirtyPaths()  # everything is scanned anyway
        sweeping = asyncio.create_task(self._sweep.changed(scan))
        try:
            flushed = await self._watcher.flush(_FLUSH_S)
            return flushed, await sweeping if flushed else DirtyPaths()
        finally:
            await cancel_all(sweeping)

    # --- as the caller of the passes (PassCaller)

    async def git_began(self) -> DirtyPaths | None:
        """Return a full scan if git began during this one: half a checkout would be published."""
        if not await self._watcher.git_began():
            return None
        self._watcher.take()
        return DirtyPaths(everything="git")

    async def changed(self) -> None:
        """Return once there are changes that no pass has taken."""
        await self._wake.wait()

    async def take(self) -> DirtyPaths | None:
        """Take the changes once the save is over. None: git is at work."""
        self._wake.clear()
        try:
            if await self._watcher.settle(_AHEAD_S):
                return self._watcher.take()
        except BaseException:
            self._wake.set()  # they are still to be taken
            raise
        self._wake.set()
        return None

    def scanned(self) -> None:
        """Watch directories that the last scan was the first to find not ignored."""
        scan = self._syncer.last_scan
        if scan is not self._widened_for:
            self._widened_for = scan
            self._watcher.widen(self._syncer.directories())

    def pending(self, paths: frozenset[str]) -> None:
        """Set the status to pending; called within a pass once its work is known."""
        if self.status.state in (MirrorState.IN_SYNC, MirrorState.PENDING, MirrorState.STARTING):
            self._set(MirrorState.PENDING, paths=paths)

    def sent(self, result: PassResult, duration_s: float) -> None:
        """Report a pass, or a part of one, to the host and to those who wait for it."""
        for request in self._taken:
            request.report = result.joined(request.report)
        if result.sent or result.deleted:
            names = tuple(result.names)
            record = PassRecord(
                time.time(), result.sent, result.sent_bytes, result.deleted, duration_s, names
            )
            self._host.mirror_sent(self._name, record)
        for text in result.warnings():  # most passes have nobody who waits for their report
            self._host.mirror_warns(self._name, text)

    # ---

    def _back_off(self, error: TunnelkitError) -> None:
        self._retry(MirrorState.STALE, error, _step(_BACKOFF_S, self._failures))
        self._failures += 1

    def _retry(self, state: MirrorState, error: TunnelkitError, delay_s: float) -> None:
        self._next_at = time.monotonic() + delay_s
        self._set(state, reason=error.one_line(), paths=self._syncer.pending)

    def _settle(self, taken: list[Request], outcome: PassResult, wishes: PassOptions) -> None:
        """Complete requests and set the status after a pass that ran to its end."""
        self._failures = self._halts = 0
        self.failed = dict(outcome.failed)
        now = time.monotonic()
        if outcome.scanned:
            self._scan_at = now + _RESCAN_S
        if wishes.repair:
            self._verify_at = now + _VERIFY_S
        idle_s = _RESCAN_S if self._watcher.alive() else max(_POLL_S, 20 * outcome.scan_s)
        if outcome.changing:
            idle_s = _step(_CHANGING_S, self._unsettled)
            self._unsettled += 1
        else:
            self._unsettled = 0
            # All that failed is sent again each time, which may be much.
            goes_on = not outcome.failed or outcome.sent or outcome.deleted
            self._unsent = 0 if goes_on else self._unsent
            if outcome.failed:
                idle_s = min(idle_s, _step(_RETRY_FAILED_S, self._unsent))
                self._unsent += 1
        self._next_at = now + idle_s
        pending = frozenset({*outcome.failed, *outcome.changing})
        if outcome.conflicts:
            reason = conflict_error(outcome.conflicts).message
            self._set(MirrorState.CONFLICT, reason=reason, paths=pending)
        elif pending:
            reason = next(iter(outcome.failed.values()), "being written")
            self._set(MirrorState.PENDING, reason=reason, paths=pending)
        else:
            self._set(MirrorState.IN_SYNC, reason=self._watcher.problem)
        for request in taken:
            # Work that is done is not repeated while the caller waits for the rest.
            request.wishes = replace(request.wishes, force=frozenset(), ours=frozenset())
        if outcome.failed:
            self._finish(taken, cannot_send(outcome.failed))
        elif outcome.conflicts:
            self._finish(taken, conflict_error(outcome.conflicts))
        elif outcome.changing:
            self._finish([request for request in taken if request.partial_ok], None)
        else:
            self._finish(taken, None)

    def _finish(self, requests: list[Request], error: TunnelkitError | None) -> None:
        for request in requests:
            if request.done.done():
                continue
            gentle = request.partial_ok and self.error is None
            if error is None or gentle:
                request.done.set_result(request.report)
            else:
                self._reject([request], error)
        self._requests = [request for request in self._requests if request not in requests]

    def _reject(self, requests: list[Request], error: TunnelkitError) -> None:
        for request in requests:
            if not request.done.done():
                request.done.set_exception(error)
                request.done.exception()  # the caller may have given up: no warning about it

    def _set(
        self,
        state: MirrorState,
        *,
        reason: str | None = None,
        paths: frozenset[str] = frozenset(),
    ) -> None:
        files, size_bytes = self._manifest.totals()
        old = self.status
        shown = tuple(heapq.nsmallest(_SHOWN_PATHS, paths))
        new = MirrorStatus(
            state, files, size_bytes, len(paths), shown, time.time(), reason, self._watcher.alive()
        )
        new = replace(new, conflicts=tuple(sorted(self._syncer.ground.conflicts)))
        if state is old.state:
            new = replace(new, since=old.since)
        if new != old:
            self.status = new
            self._host.mirror_changed(self._name, new)


def _step(delays_s: Sequence[float], count: int) -> float:
    return delays_s[min(count, len(delays_s) - 1)]
