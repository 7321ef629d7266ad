"""The mirror as the session sees it: start, barrier, resync, stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.errors import MirrorError, TimeoutExpired
from tunnelkit.mirror.agent.channel import NotThere
from tunnelkit.mirror.agent.channel_provider import RootReplaced
from tunnelkit.mirror.api import (
    DigestCheck,
    MirrorHalted,
    MirrorHost,
    MirrorState,
    MirrorStatus,
    SyncReport,
)
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.explain import Explanation, RemoteComparison, explain, sync_state
from tunnelkit.mirror.passes.initial_scan import InitialScan
from tunnelkit.mirror.passes.options import PassOptions
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.passes.syncer import Syncer
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.proof import not_in_sync, prove
from tunnelkit.mirror.pull import OnProgress, PullReport, Sides, pull, take_theirs, wanted_path
from tunnelkit.mirror.push_worker import PushWorker, Request
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.record.other_disk import doubt_all
from tunnelkit.mirror.remote.edits import cannot_send, relative_to, select_conflicts
from tunnelkit.mirror.remote.owned_root import OwnedRoot
from tunnelkit.mirror.remote.owner import OwnerRecord
from tunnelkit.mirror.remote.root import RemoteRoot, check_local_dir, check_remote_dir
from tunnelkit.mirror.remote.scripts import RootGone
from tunnelkit.mirror.transfer.base import Transfer
from tunnelkit.mirror.transfer.choose import choose_transfer
from tunnelkit.mirror.tree.filesystem import is_local
from tunnelkit.mirror.tree.ignore import IgnoreRules, inside
from tunnelkit.mirror.tree.scanner import Scanner
from tunnelkit.mirror.tree.symlinks import SymlinkPolicy
from tunnelkit.mirror.watch.watcher import Watcher
from tunnelkit.model import MirrorSpec
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.remote_script import RemoteHost

if TYPE_CHECKING:
    from tunnelkit.mirror.watch.shared_source import MakeWatch

_CLOSE_S = 5.0
_PULL_WAIT_S = 10.0  # for a pass: a big transfer may take longer


class Mirror:
    """Keeps one remote directory equal to one local directory, laptop to cluster only.

    spec, remote: the directories and their host. state_dir: a private directory on the laptop for
    the manifest. take_over: from another laptop directory that mirrors into the same remote root;
    then `taken_from` names it. watch: makes the watcher. instance: returns which host of its name
    this is; "" where a host keeps its disk. `remote_root` is known once `start` has returned.
    """

    def __init__(
        self,
        spec: MirrorSpec,
        remote: RemoteHost,
        host: MirrorHost,
        *,
        state_dir: Path,
        take_over: bool = False,
        watch: MakeWatch = Watcher,
        instance: Callable[[], str] = str,
    ) -> None:
        self.spec = spec
        self._watch = watch
        self._instance = instance
        self.local_root = ""
        self._host = host
        self._remote = remote
        self._place = OwnedRoot(remote, spec, state_dir)
        self._state_dir = state_dir
        self._take_over = take_over
        self._rsync: Transfer | None = None
        self.sizes = SizeWatch(lambda text: host.mirror_warns(spec.name, text))
        self.links = SymlinkPolicy(spec.symlinks)
        self._rules = IgnoreRules()
        self._syncer: Syncer | None = None
        self._idle_status = MirrorStatus(MirrorState.STARTING)
        self._manifest: Manifest | None = None
        self._watcher: Watcher | None = None
        self._worker: PushWorker | None = None
        self._task: asyncio.Task[None] | None = None
        self._look: InitialScan | None = None

    @property
    def remote_root(self) -> str:
        """The remote root as the user names it; "" before it is known."""
        return self._place.path

    @property
    def taken_from(self) -> str | None:
        """Another laptop directory that mirrored into the remote root before, or None."""
        return self._place.taken_from

    def status(self) -> MirrorStatus:
        """Return the current status; costs nothing."""
        return self._worker.status if self._worker is not None else self._idle_status

    def sent(self) -> Mapping[str, ManifestEntry]:
        """Return what was sent by now, by path, as a copy. Raises MirrorError."""
        return dict(self._running()[1].rows)

    def progress(self) -> Progress | None:
        """Return the big transfer under way, or None."""
        return self._syncer.ground.progress if self._syncer is not None else None

    async def explain(self, path: str) -> Explanation:
        """Explain why a local path is mirrored or not, and its state. Raises MirrorError."""
        _, manifest = self._running()
        found = await asyncio.to_thread(explain, self.local_root, self._rules, path)
        conflicts = self._syncer.ground.conflicts if self._syncer is not None else ()
        about = (self._place.real, manifest, self._check(), conflicts)
        return await sync_state(found, RemoteComparison(self.local_root, self._remote, *about))

    async def look(self) -> None:
        """Begin the initial scan, which needs no connection. Raises MirrorError."""
        if self._look is not None:
            return
        local = await asyncio.to_thread(check_local_dir, self.spec.local_dir)
        self.local_root = str(local)
        never = inside(self._state_dir, local)
        self._rules = IgnoreRules.from_exclude(self.spec.exclude, never=never)
        scanner = Scanner(self.local_root, self._rules, self.links.judge, kinds=self.links.kinds)
        self._look = InitialScan(scanner, self._state_dir, self._host.file_agent_soon)
        self._look.begin()

    async def start(self) -> None:
        """Check both directories, make the first copy, then go on watching.

        A file that can't be read or written doesn't stop the rest: it stays pending. Raises
        MirrorError for a directory that is refused, MirrorHalted for a tree that needs many
        deletes, MissingProgram, ConnectionFailed. After an error nothing runs.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            await self._place.unmake()
            raise
        self._place.keep()

    async def _start(self) -> None:
        check_remote_dir(self.spec.remote_dir)
        await self.look()
        look, self._look = self._look, None
        assert look is not None
        preparing = asyncio.create_task(self._place.prepare())
        hurrying = asyncio.create_task(look.hurry(preparing))
        try:
            await self._start_at(await preparing, look)
        finally:
            await cancel_all(hurrying, preparing)
            await look.close()

    async def _start_at(self, target: RemoteRoot, look: InitialScan) -> None:
        self._place.real = target.real
        await self._host.may_write()
        # Side by side: round trips are the cost of a distant host.
        transfer = choose_transfer(self._remote, self.local_root, target, say=self._host.say)
        choosing = asyncio.create_task(transfer)
        try:
            held = await self._hold(take_over=self._take_over)
            rsync = self._rsync = await choosing
        finally:
            await cancel_all(choosing)
        host, root = self._remote.destination(), self.local_root
        file = Manifest.file_for(
            self._state_dir, local_root=root, host=host, remote_root=target.real
        )
        manifest = self._manifest = Manifest(file)
        scan = await look.scan()
        await asyncio.to_thread(manifest.open, None if scan is None else scan.entries)
        other = await asyncio.to_thread(doubt_all, manifest, self._instance())
        quick, tried = is_local(self.local_root), manifest.tried()
        about = (target.real, manifest, held, target.fresh, target.folding, self.spec.delete_limit)
        ground = SyncContext(self._remote, self.local_root, *about, quick, other, tried=tried)
        ground.unfinished = manifest.is_unfinished()
        wake, scanner, sizes = asyncio.Event(), look.scanner, self.sizes
        syncer = self._syncer = Syncer(
            ground, scanner, rsync, self._host, sizes=sizes, wake=wake.set, first=look
        )
        syncer.last_scan = scan
        watcher = self._watcher = self._watch(
            self.local_root,
            wake.set,
            interesting=syncer.interesting,
            wanted=syncer.wanted,
            known=syncer.known,
        )
        await watcher.start()  # before the first scan, so that no change is missed in between
        worker = self._worker = PushWorker(
            syncer, manifest, watcher, self._host, self.spec.name, wake=wake
        )
        request = worker.post(PassOptions(repair=True), partial_ok=True)
        self._task = asyncio.create_task(worker.run(), name="tk-mirror")
        await worker.first(request)
        self.sizes.news()  # the caller of `start` shows them

    async def _hold(self, *, take_over: bool) -> OwnerRecord:
        held = self._syncer.ground.claim if self._syncer is not None else None
        turn = held.owner.turn if held is not None else None
        return await self._place.hold(self.local_root, turn, take_over=take_over)

    async def barrier(self, timeout_s: float, *, allow_deletes: bool = False) -> SyncReport:
        """Wait until every file, as of the call or newer, is on the cluster, and is proven.

        Proven: read back on the compute node, if `verify` gives a check.
        allow_deletes: the user has confirmed the deletes that halted the mirror. Raises
        MirrorError naming the files that can't be sent or that differ on the node,
        TimeoutExpired naming what is pending, MirrorHalted."""
        begin = time.monotonic()
        try:
            report = await self._barrier(timeout_s, allow_deletes=allow_deletes)
        except (NotThere, RootReplaced, RootGone):  # all is sent into the one there
            await self.resync(begin + timeout_s - time.monotonic())
            left_s = begin + timeout_s - time.monotonic()
            report = await self._barrier(left_s, allow_deletes=allow_deletes)
        return replace(report, duration_s=time.monotonic() - begin)

    async def _barrier(self, timeout_s: float, *, allow_deletes: bool) -> SyncReport:
        begin = time.monotonic()
        worker, manifest = self._running()
        request = worker.post(PassOptions(allow_deletes=allow_deletes))
        # Its round trip costs nothing during the scan. Not needed if files are sent.
        greeting = asyncio.create_task(self._greet())
        try:
            report = await self._wait(request, begin + timeout_s, timeout_s)
            proven = await self._prove(manifest, greeting, begin + timeout_s, timeout_s)
        finally:
            await cancel_all(greeting)
        return replace(report, proven=proven or 0, by_node=proven is not None)

    async def resync(self, timeout_s: float = 600.0) -> SyncReport:
        """Check both ends in full and repair, after the link has come back.

        Raises as `barrier`, and ConnectionFailed if the link is not back."""
        begin = time.monotonic()
        self._running()
        target = await self._place.prepare()
        if target.real != self._place.real:
            raise MirrorHalted(
                f"{target.root} leads elsewhere than before",
                cause=f"{target.real} instead of {self._place.real}",
                hint="`tk down`, then `tk up` to mirror into the new place",
            )
        await self._hold(take_over=False)
        worker, _ = self._running()
        request = worker.post(PassOptions(repair=True))
        report = await self._wait(request, begin + timeout_s, timeout_s)
        return replace(report, duration_s=time.monotonic() - begin)

    def look_again(self) -> None:
        """Have a new agent check all that was sent; return at once."""
        if self._worker is not None:
            self._worker.post(PassOptions(repair=True), partial_ok=True)

    async def resolve(
        self, paths: Sequence[str], *, theirs: bool, timeout_s: float = 120.0
    ) -> SyncReport:
        """Settle the conflicts at or below these absolute local paths.

        The laptop's version wins, or `theirs`. The other one is kept in the report's
        `replaced_dir` (there or here). Raises as `barrier`, and MirrorError for a path without
        a conflict.
        """
        begin = time.monotonic()
        deadline = begin + timeout_s
        worker, manifest = self._running()
        sides = self._sides()
        wanted = [relative_to(self.local_root, path) for path in paths]
        # Paths that the user names are compared by digest: stat may not show a difference.
        named = frozenset(path for path in wanted if path in manifest.rows)
        request = worker.post(PassOptions(force=named), partial_ok=True)
        await self._wait(request, deadline, timeout_s)
        found = frozenset(select_conflicts(worker.status.conflicts, wanted))
        kept_dir = await take_theirs(sides, found, wanted) if theirs else None
        request = worker.post(PassOptions(ours=frozenset() if theirs else found), partial_ok=True)
        report = await self._wait(request, deadline, timeout_s)
        if kept_dir is not None:
            report = replace(report, replaced=tuple(sorted(found)), replaced_dir=kept_dir)
        elif left := sorted(found.intersection(worker.failed)):
            raise cannot_send({path: worker.failed[path] for path in left})
        return replace(report, duration_s=time.monotonic() - begin)

    async def pull(
        self, paths: Sequence[str], *, on_progress: OnProgress = lambda progress: None
    ) -> PullReport:
        """Fetch outputs, named by remote or absolute local paths. Raises as `pull.pull`."""
        worker, manifest = self._running()
        sides = self._sides()
        wanted = [wanted_path(sides, path) for path in paths]
        # So that the mirror's own files are known; a halted mirror knows them as well. Without a
        # pass, what is here and no rule ignores may be a file that none has seen yet.
        with contextlib.suppress(MirrorHalted, TimeoutExpired):
            request = worker.post(partial_ok=True)
            await self._wait(request, time.monotonic() + _PULL_WAIT_S, _PULL_WAIT_S)
        syncer = self._syncer
        assert syncer is not None

        def is_mirrored(path: str) -> bool:
            return syncer.interesting(os.path.join(self.local_root, path))

        def owned(path: str) -> bool:
            # After an accidental rm the mirror has halted, and the cluster has the only copy.
            is_here = os.path.lexists(os.path.join(self.local_root, path))
            return is_here and (path in manifest.rows or syncer.known(path) or is_mirrored(path))

        report = await pull(sides, wanted, owned=owned, record=manifest, on_progress=on_progress)
        return replace(report, mirrored=tuple(filter(is_mirrored, report.pulled)))

    def _sides(self) -> Sides:
        if self._rsync is None:
            raise MirrorError("the mirror is not running", hint="`tk up` starts it")
        place = self._place
        return Sides(self._remote, self._rsync, self.local_root, place.path, place.real)

    async def stop(self) -> None:
        """End the task, its rsync and the watcher. Idempotent."""
        look, self._look = self._look, None
        if look is not None:
            await look.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await watcher.stop()
        if self._syncer is not None:
            await self._syncer.close()
        worker, self._worker = self._worker, None
        unreachable = worker is not None and worker.status.state is MirrorState.STALE
        if worker is not None:
            worker.close()
            self._idle_status = worker.status
        manifest, self._manifest = self._manifest, None
        if manifest is not None:
            # The cancelled task may have left a thread that uses it: the loop must not wait.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.to_thread(manifest.close)
        await self._place.release(unreachable=unreachable)

    def _running(self) -> tuple[PushWorker, Manifest]:
        if self._worker is None or self._manifest is None:
            raise MirrorError("the mirror is not running", hint="`tk up` starts it")
        return self._worker, self._manifest

    def _check(self) -> DigestCheck | None:
        return self._host.digest_check(self.remote_root)

    async def _wait(self, request: Request, deadline: float, timeout_s: float) -> SyncReport:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await request.done
        except TimeoutError:
            raise not_in_sync(self.status(), timeout_s) from None

    async def _greet(self) -> bool:
        assert self._syncer is not None
        return self._check() is not None and await self._syncer.channels.ping()

    async def _prove(
        self, manifest: Manifest, greeting: Awaitable[bool], deadline: float, timeout_s: float
    ) -> int | None:
        """Return the number of files that the node read back for this barrier; None: no node."""
        check = self._check()
        if check is None:
            return None
        assert self._syncer is not None

        async def resend(paths: frozenset[str]) -> None:
            worker, _ = self._running()
            await self._wait(worker.post(PassOptions(force=paths)), deadline, timeout_s)

        return await prove(
            self._syncer.channels,
            check,
            manifest,
            greeting=greeting,
            deadline=deadline,
            timeout_s=timeout_s,
            resend=resend,
        )
