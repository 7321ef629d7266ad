"""The mirrors of a session whose pods have disks of their own: the same files in each pod.

The first pod's mirrors are those of the session: they decide when it is ready. Those of the others
start after them, beside the session's life, and each barrier waits for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tunnelkit.errors import TimeoutExpired, TunnelkitError
from tunnelkit.mirror.api import MirrorHost, SyncReport
from tunnelkit.mirror.remote.edits import NoConflict
from tunnelkit.mux.tasks import cancel_all, start
from tunnelkit.remote_script import RemoteHost
from tunnelkit.session.files.mirror_set import MirrorSet, named, named_error, worst_first
from tunnelkit.session.files.pods import Pods, PodWays
from tunnelkit.session.runtime.status import MirrorInfo

if TYPE_CHECKING:
    from tunnelkit.session.files.pod_mirrors import PodMirrors
    from tunnelkit.session.files.shared_roots import SharedRoots

_T = TypeVar("_T")
#: The laptop sends all files to so many pods; a volume serves more of them.
MOST_PODS = 8
#: Pauses between questions for a pod in the place of a lost one, growing between these.
_SEEK_S = (0.5, 25.0)
#: Limit of the question if a pod that fails is gone.
_GONE_S = 5.0


class PodFiles(MirrorSet):
    """The first pod's mirrors, and the files of the others. Call `follow` when the pods change.

    Errors and paths of one pod among several begin with its name.
    """

    def __init__(self, remote: RemoteHost, host: MirrorHost, pods: Pods, ways: PodWays) -> None:
        super().__init__(
            ways.specs,
            remote,
            host,
            state_dir=ways.state_dir,
            take_over=ways.take_over,
            watch=ways.watch,
            instance=pods.instance,
        )
        self._pods = pods
        self._ways = ways
        self._roots: SharedRoots | None = None
        self._others: dict[str, PodMirrors] = {}
        self._follows = False
        self._told_most = 0
        #: Asks for the pod in the place of a lost one.
        self._seeking: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    # -- life -------------------------------------------------------------

    async def start(self) -> None:
        """Start the first pod's mirrors, then begin with the others. Raises as `MirrorSet.start`.

        What can't be written in one of the others is a warning, and fails the barriers.
        """
        await super().start()
        self._follows = True
        self._pods.agents.changed = self._link_changed
        self.follow()

    def follow(self) -> None:
        """Begin in the pods that came, and end in those that went. A pod's restart is both."""
        if not self._follows:
            return
        now = self._pods.others()
        chosen = dict(list(now.items())[: MOST_PODS - 1])
        for pod, one in list(self._others.items()):
            if chosen.get(pod) != one.instance:
                del self._others[pod]
                self._seek(pod not in chosen)
                one.over.set()
                self._pods.agents.forget(pod)
                start(self._ending, self._end(one))
        if len(self._others) < len(chosen):
            self._seek(False)
        for pod, instance in chosen.items():
            if pod not in self._others:
                self._others[pod] = self._begin(pod, instance)
        left = len(now) - len(chosen)
        if left > self._told_most:
            self._ways.warn(
                f"the files are sent to {MOST_PODS} of {len(now) + 1} pods; the other {left} see "
                "them only on a volume that they share with these"
            )
        self._told_most = max(left, self._told_most)

    async def stop_others(self) -> None:
        """End the mirrors in all pods but the first. Idempotent."""
        self._follows = False
        self._seek(False)
        others, self._others = list(self._others.values()), {}
        for one in others:
            one.over.set()
        ends = (one.stop() for one in others)
        await asyncio.gather(*ends, *self._ending, return_exceptions=True)

    async def stop(self) -> None:
        """Stop all, even if one fails to stop. Idempotent."""
        try:
            await self.stop_others()
        finally:
            self._roots = None
            await super().stop()

    def _begin(self, pod: str, instance: str) -> PodMirrors:
        # A session with one pod needs none of it.
        from tunnelkit.session.files.pod_mirrors import PodMirrors
        from tunnelkit.session.files.shared_roots import RootWriter, SharedRoots

        if self._roots is None:
            self._roots = SharedRoots()
            for mirror in self.all:
                self._roots.add(RootWriter(self._pods.first(), self._remote, mirror))
        one = PodMirrors(pod, instance, self._ways, self._pods, self._roots, self._undone)
        one.begin()
        return one

    def _seek(self, wanted: bool) -> None:
        """Have the cluster asked for the pod that comes in the place of a lost one, or stop it."""
        seeking, self._seeking = self._seeking, None
        if seeking is not None:
            seeking.cancel()
        if wanted:
            self._seeking = start(self._ending, self._ask_for_pods())

    async def _ask_for_pods(self) -> None:
        pause_s = _SEEK_S[0]
        while pause_s <= _SEEK_S[1]:
            await asyncio.sleep(pause_s)
            self._pods.look()
            pause_s *= 1.5

    async def _end(self, one: PodMirrors) -> None:
        await one.stop()
        self._ways.changed()

    def _link_changed(self, pod: str) -> None:
        one = self._others.get(pod)
        if one is not None:
            one.link_changed()

    def _undone(self, pod: str) -> None:
        """Have the pods decide again that see what `pod` has written."""
        if self._follows:
            for one in self._others.values():
                if pod in one.rests_on:
                    start(self._ending, one.start_anew())

    # -- all of them ------------------------------------------------------

    async def barrier(self, timeout_s: float, *, allow_deletes: bool = False) -> SyncReport:
        """Run `MirrorSet.barrier` in all pods; each of them proves what it sees.

        The report counts each file once.
        """
        mine = super().barrier(timeout_s, allow_deletes=allow_deletes)
        if not self._others:
            return await mine
        begin = time.monotonic()
        deadline = begin + timeout_s
        first, others = self._pods.first(), list(self._others)

        async def own(one: PodMirrors) -> SyncReport:
            left_s = max(0.0, deadline - time.monotonic())
            return await one.barrier(left_s, timeout_s, allow_deletes=allow_deletes)

        nothing = SyncReport(by_node=True)
        each = [self._in_pod(pod, own, nothing) for pod in others]
        reports = await all_of([_named(first, mine), *each])
        # What is on a volume is there only now.
        counts = await all_of(
            [self._in_pod(pod, lambda one: one.prove(deadline, timeout_s), 0) for pod in others]
        )
        report = merged([first, *others], reports)
        duration_s = time.monotonic() - begin
        return replace(report, proven=max(report.proven, *counts), duration_s=duration_s)

    async def _in_pod(
        self, pod: str, work: Callable[[PodMirrors], Coroutine[object, object, _T]], nothing: _T
    ) -> _T:
        """Run `work` in a pod, or in the one that has taken its place meanwhile.

        Returns `nothing` once there is none.
        """
        while (one := self._others.get(pod)) is not None:
            working = asyncio.create_task(work(one))
            over = asyncio.create_task(one.over.wait())
            try:
                await asyncio.wait([working, over], return_when=asyncio.FIRST_COMPLETED)
                if not one.over.is_set():
                    return await working
            except TimeoutExpired:
                raise
            except TunnelkitError:
                if not await self._is_over(one):
                    raise
            finally:
                await cancel_all(working, over)
        return nothing

    async def _is_over(self, one: PodMirrors) -> bool:
        """Return True if a pod that failed is gone: the cluster may not have said so yet."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_S):
                while not one.is_up and not one.over.is_set():
                    self._pods.look()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_SEEK_S[0]):
                            await one.over.wait()
        return one.over.is_set()

    async def resync(self) -> SyncReport:
        """Run `MirrorSet.resync` in the first pod, whose link is back; the others try theirs again.

        Each of them checks all its files once it is there.
        """
        for pod in self._others:
            client = self._pods.agents.current(pod)
            if client is not None:
                client.retry()
        return await super().resync()

    async def resolve(
        self, paths: Sequence[str], *, theirs: bool, timeout_s: float = 120.0
    ) -> SyncReport:
        """Run `MirrorSet.resolve` in the pods that have the conflict.

        The laptop's version wins in all of them. `theirs` is that of the first one that has a
        conflict there; where another pod has yet another version, that conflict stays.
        """
        others = [one for one in self._others.values() if one.mirrors is not None]
        if not others:
            return await super().resolve(paths, theirs=theirs, timeout_s=timeout_s)
        names: list[str] = []
        reports: list[SyncReport] = []
        first = self._pods.first()
        for path in paths:
            mine = super().resolve([path], theirs=theirs, timeout_s=timeout_s)
            works = [(first, _named(first, mine))]
            works += [
                (one.pod, one.resolve(path, theirs=theirs, timeout_s=timeout_s)) for one in others
            ]
            for name, report in await _where_in_conflict(works, only_first=theirs):
                names.append(name)
                reports.append(report)
        return merged(names, reports)

    def conflicts(self) -> list[str]:
        """Return the paths that are in conflict, those of the other pods after their name."""
        others = (
            named(one.pod, path)
            for one in self._others.values()
            if one.mirrors is not None
            for path in one.mirrors.conflicts()
        )
        return [*super().conflicts(), *others]

    def describe(self) -> list[MirrorInfo]:
        """Return all mirrors in all pods for `tk status --json`, the worst state first."""
        others = [info for one in self._others.values() for info in one.describe()]
        return worst_first([*super().describe(), *others])


async def _named(pod: str, work: Awaitable[_T]) -> _T:
    try:
        return await work
    except TunnelkitError as error:
        raise named_error(pod, error) from None


async def all_of(works: Sequence[Awaitable[_T]]) -> list[_T]:
    """Await all, to the end even if one fails. Raise the first error; it names the others."""
    results = await asyncio.gather(*works, return_exceptions=True)
    errors = [one for one in results if isinstance(one, TunnelkitError)]
    done = [one for one in results if not isinstance(one, BaseException)]
    for one in results:
        if isinstance(one, BaseException) and not isinstance(one, TunnelkitError):
            raise one
    if not errors:
        return done
    first, *more = errors
    if more:
        also = "; ".join(one.message for one in more)
        first.cause = f"{first.cause}; also {also}" if first.cause else f"also {also}"
    raise first


async def _where_in_conflict(
    works: Sequence[tuple[str, Coroutine[object, object, SyncReport]]], *, only_first: bool
) -> list[tuple[str, SyncReport]]:
    """Run them one after the other; return the reports of those that had a conflict.

    Raises the first one's NoConflict if none had.
    """
    found: list[tuple[str, SyncReport]] = []
    nothing: NoConflict | None = None
    left = list(works)
    try:
        while left and not (found and only_first):
            name, work = left.pop(0)
            try:
                found.append((name, await work))
            except NoConflict as error:
                nothing = nothing or error
    finally:
        for _, work in left:
            work.close()
    if not found and nothing is not None:
        raise nothing
    return found


def merged(names: Sequence[str], reports: Sequence[SyncReport]) -> SyncReport:
    """Return the reports of several pods as one: each file counts once.

    Paths of all but the first pod come after the pod's name.
    """
    total = SyncReport(by_node=all(one.by_node for one in reports))
    for number, (name, one) in enumerate(zip(names, reports, strict=True)):
        pod = name if number else ""
        dirs = [where for where in (total.replaced_dir, one.replaced_dir) if where]
        total = replace(
            total,
            sent=max(total.sent, one.sent),
            sent_bytes=max(total.sent_bytes, one.sent_bytes),
            deleted=max(total.deleted, one.deleted),
            kept=(*total.kept, *(named(pod, path) for path in one.kept)),
            replaced=(*total.replaced, *(named(pod, path) for path in one.replaced)),
            replaced_dir=", ".join(dict.fromkeys(dirs)) or None,
            proven=max(total.proven, one.proven),
            duration_s=max(total.duration_s, one.duration_s),
        )
    return total
