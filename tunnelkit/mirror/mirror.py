"""The mirror as the session sees it: start, barrier, resync, stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tunnelkit.errors import MirrorError, MissingProgram, TimeoutExpired
from tunnelkit.mirror.base import (
    DigestCheck,
    MirrorHalted,
    MirrorState,
    MirrorStatus,
    Remote,
    SyncReport,
    name_paths,
)
from tunnelkit.mirror.ignore import IgnoreRules
from tunnelkit.mirror.manifest import Manifest
from tunnelkit.mirror.rsync import Rsync
from tunnelkit.mirror.scan import Scanner
from tunnelkit.mirror.sync import Syncer
from tunnelkit.mirror.target import Target, check_local_dir, check_remote_dir, prepare
from tunnelkit.mirror.watch import Watcher
from tunnelkit.mirror.worker import Request, Worker
from tunnelkit.model import MirrorSpec

#: how often the node is asked again while its file system lags, growing between these
_ASK_AGAIN_S = (0.1, 2.0)
_RESEND_AFTER = 3


class Mirror:
    """Keeps one remote directory equal to one local directory, laptop to cluster only.

    spec, remote: what goes where. state_dir: a private directory on the laptop for the
    record of what was sent. verify: called at each barrier for a check that reads digests
    back on the compute node, or None where there is none yet. on_change: told every change
    of status, in the event loop. `remote_root` is known once `start` has returned.
    """

    def __init__(
        self,
        spec: MirrorSpec,
        remote: Remote,
        *,
        state_dir: Path,
        verify: Callable[[], DigestCheck | None] = lambda: None,
        on_change: Callable[[MirrorStatus], None] = lambda status: None,
    ) -> None:
        self.spec = spec
        self.local_root = ""
        self.remote_root = ""
        self._remote = remote
        self._state_dir = state_dir
        self._verify = verify
        self._on_change = on_change
        self._idle_status = MirrorStatus(MirrorState.STARTING)
        self._real_root = ""
        self._manifest: Manifest | None = None
        self._watcher: Watcher | None = None
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None

    def status(self) -> MirrorStatus:
        """The state of this moment; costs nothing."""
        return self._worker.status if self._worker is not None else self._idle_status

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
            raise

    async def _start(self) -> None:
        check_remote_dir(self.spec.remote_dir)
        local = await asyncio.to_thread(check_local_dir, self.spec.local_dir)
        self.local_root = str(local)
        rules = IgnoreRules.from_exclude(self.spec.exclude, never=_inside(self._state_dir, local))
        rsync = Rsync(self._remote, self.local_root)
        await rsync.probe()
        target = await self._prepare()
        self._real_root = target.real
        manifest = self._manifest = Manifest(
            Manifest.file_for(
                self._state_dir,
                local_root=self.local_root,
                host=self._remote.destination(),
                remote_root=target.real,
            )
        )
        await asyncio.to_thread(manifest.open)
        scanner = Scanner(self.local_root, rules)
        syncer = Syncer(self._remote, rsync, scanner, manifest, target.real, fresh=target.fresh)
        wake = asyncio.Event()
        watcher = self._watcher = Watcher(self.local_root, wake.set, interesting=syncer.interesting)
        await watcher.start()  # before the first scan, so that nothing falls between
        worker = self._worker = Worker(
            syncer, manifest, watcher, wake=wake, on_status=self._on_change
        )
        request = worker.post(repair=True, partial_ok=True)
        self._task = asyncio.create_task(worker.run(), name="tk-mirror")
        await self._first_copy(worker, request)

    async def _first_copy(self, worker: Worker, request: Request) -> None:
        """Wait for it, however long, but not through the back-off of a dead link."""
        while not request.done.done():
            await asyncio.wait([request.done], timeout=0.2)
            if not request.done.done() and worker.error is not None:
                request.done.cancel()
                raise worker.error
        request.done.result()

    async def _prepare(self) -> Target:
        target = await prepare(self._remote, self.spec.remote_dir)
        for program, found in (("rsync", target.has_rsync), ("GNU stat", target.has_stat)):
            if not found:
                raise MissingProgram(
                    f"{program} is not found on {self._remote.destination()}",
                    hint="install it there, or load its module in ~/.profile; or use `tk mount`",
                )
        self.remote_root = target.root
        return target

    async def barrier(self, timeout_s: float, *, allow_deletes: bool = False) -> SyncReport:
        """Return once every file, as it was here when called or newer, is on the cluster
        and, where `verify` gives a check, was read back on the compute node.

        allow_deletes: the person has confirmed the deletes that halted the mirror. Raises
        MirrorError naming the files that can't be sent or that differ on the node,
        TimeoutExpired naming what is pending, MirrorHalted.
        """
        begin = time.monotonic()
        worker, manifest = self._running()
        request = worker.post(allow_deletes=allow_deletes)
        report = await self._wait(request, begin + timeout_s, timeout_s)
        check = self._verify()
        proven = 0
        if check is not None:
            proven = await self._prove(check, manifest, begin + timeout_s, timeout_s)
        return replace(report, proven=proven, duration_s=time.monotonic() - begin)

    async def resync(self, timeout_s: float = 600.0) -> SyncReport:
        """After the link came back: look at both ends in full, and repair. Raises as
        `barrier`, and ConnectionFailed if the link is not back."""
        begin = time.monotonic()
        self._running()
        target = await self._prepare()
        if target.real != self._real_root:
            raise MirrorHalted(
                f"{target.root} leads elsewhere than before",
                cause=f"{target.real} instead of {self._real_root}",
                hint="`tk down`, then `tk up` to mirror into the new place",
            )
        worker, _ = self._running()
        report = await self._wait(worker.post(repair=True), begin + timeout_s, timeout_s)
        return replace(report, duration_s=time.monotonic() - begin)

    async def forget_proofs(self) -> None:
        """Have the next barrier prove every file: the compute node is another one now."""
        _, manifest = self._running()
        await asyncio.to_thread(manifest.forget_proofs)

    async def stop(self) -> None:
        """End the task, its rsync and the watcher. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await watcher.stop()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
            self._idle_status = worker.status
        manifest, self._manifest = self._manifest, None
        if manifest is not None:
            # The cancelled task may have left a thread that is at it: not the loop waits for that.
            await asyncio.to_thread(manifest.close)

    def _running(self) -> tuple[Worker, Manifest]:
        if self._worker is None or self._manifest is None:
            raise MirrorError("the mirror is not running", hint="`tk up` starts it")
        return self._worker, self._manifest

    async def _wait(self, request: Request, deadline: float, timeout_s: float) -> SyncReport:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await request.done
        except TimeoutError:
            raise self._expired(timeout_s) from None

    def _expired(self, timeout_s: float) -> TimeoutExpired:
        status = self.status()
        cause = None
        if status.pending_paths:
            cause = f"{status.pending} pending: {name_paths(status.pending_paths)}"
        if status.state is MirrorState.STALE:
            cause = "; ".join(filter(None, (status.describe(), cause)))
        return TimeoutExpired(
            f"the mirror is not in sync after {timeout_s:g} s",
            cause=cause,
            hint="wait and try again; exclude files that never stop changing",
            transient=True,
        )

    async def _prove(
        self, check: DigestCheck, manifest: Manifest, deadline: float, timeout_s: float
    ) -> int:
        """Have the node read back what it has not proven yet. Its file system may lag."""
        wanted = set(manifest.unproven())
        proven, rounds, pause_s = 0, 0, _ASK_AGAIN_S[0]
        while True:
            digests = {path: text for path, text in manifest.unproven().items() if path in wanted}
            if not digests:
                return proven
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    differing = frozenset(await check(digests))
            except TimeoutError:
                raise TimeoutExpired(
                    f"the compute node has not read the files back within {timeout_s:g} s",
                    cause=f"{len(digests)} pending: {name_paths(sorted(digests))}",
                    transient=True,
                ) from None
            good = {path: text for path, text in digests.items() if path not in differing}
            proven += await asyncio.to_thread(manifest.prove, good)
            if not differing:
                continue  # a file sent again meanwhile is asked about again
            if time.monotonic() + pause_s > deadline:
                raise _node_differs(differing)
            rounds += 1
            if rounds == _RESEND_AFTER:  # not lag alone: changed there? Send them once more.
                worker, _ = self._running()
                try:
                    await self._wait(worker.post(force=differing), deadline, timeout_s)
                except TimeoutExpired:
                    raise _node_differs(differing) from None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _ASK_AGAIN_S[1])


def _node_differs(paths: frozenset[str]) -> MirrorError:
    return MirrorError(
        "the compute node still sees other content than the laptop",
        cause=f"{len(paths)} differ: {name_paths(sorted(paths))}",
        hint="its network file system lags, or something there changes them",
        transient=True,
    )


def _inside(state_dir: Path, root: Path) -> list[str]:
    """The state directory as a path to leave out, if it lies in the mirrored tree."""
    state = state_dir.resolve()
    return [state.relative_to(root).as_posix()] if state.is_relative_to(root) else []
