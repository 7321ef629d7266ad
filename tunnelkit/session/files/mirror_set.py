"""All mirrors of a session: the project's own and those of [[mirror.also]]."""

from __future__ import annotations

import asyncio
import copy
import os
import posixpath
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tunnelkit.errors import TunnelkitError
from tunnelkit.mirror.api import MirrorHost, MirrorState, MirrorStatus, SyncReport
from tunnelkit.mirror.explain import Explanation, by_policy, relative_to_root
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.pull import OnProgress, PullReport
from tunnelkit.mirror.remote.nesting import check_apart
from tunnelkit.mirror.watch.watcher import Watcher
from tunnelkit.model import MirrorSpec
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.remote_script import RemoteHost
from tunnelkit.session.files import mirror_json
from tunnelkit.session.runtime.status import MirrorInfo

if TYPE_CHECKING:
    from tunnelkit.mirror.watch.shared_source import MakeWatch

T = TypeVar("T")

#: Order of states, the worst first.
_WORST = (
    MirrorState.HALTED,
    MirrorState.STALE,
    MirrorState.CONFLICT,
    MirrorState.STARTING,
    MirrorState.PENDING,
    MirrorState.STOPPED,
    MirrorState.IN_SYNC,
)


class MirrorSet:
    """One `Mirror` for each of `specs`, the project's own first.

    Errors and paths of the others begin with the root's name.

    For the rest see `Mirror`.
    """

    def __init__(
        self,
        specs: Sequence[MirrorSpec],
        remote: RemoteHost,
        host: MirrorHost,
        *,
        state_dir: Path,
        take_over: bool = False,
        watch: MakeWatch = Watcher,
        instance: Callable[[], str] = str,
    ) -> None:
        self._remote = remote
        how = partial(
            Mirror, state_dir=state_dir, take_over=take_over, watch=watch, instance=instance
        )
        self.all = tuple(how(spec, remote, host) for spec in specs)

    @property
    def project(self) -> Mirror:
        """The mirror of the project's own directory."""
        return self.all[0]

    # -- life -------------------------------------------------------------

    async def look(self) -> None:
        """Begin the initial scans, after a check of all local directories.

        Raises MirrorError for one that is missing or too wide; then nothing runs.
        """
        for mirror in self.all:
            try:
                await mirror.look()
            except TunnelkitError as error:
                await self.stop()
                raise named_error(mirror.spec.name, error) from None

    async def start(self) -> None:
        """Start all; after an error none runs. Raises as `Mirror.start`."""
        if len(self.all) > 1:
            await check_apart(self._remote, [mirror.spec.remote_dir for mirror in self.all])
        starts = [asyncio.create_task(_told(mirror, mirror.start())) for mirror in self.all]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            await cancel_all(*starts)
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all, even if one fails to stop. Idempotent."""
        stops = (mirror.stop() for mirror in self.all)
        for result in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def follow(self) -> None:
        """Take the session's pods as they are now: see `PodFiles`."""

    async def stop_others(self) -> None:
        """End the mirrors in all pods but the first: see `PodFiles`."""

    # -- all of them ------------------------------------------------------

    async def barrier(self, timeout_s: float, *, allow_deletes: bool = False) -> SyncReport:
        """Run `Mirror.barrier` for all roots, each as far as possible."""
        return await self._each(
            self.all, lambda one: one.barrier(timeout_s, allow_deletes=allow_deletes)
        )

    async def resync(self) -> SyncReport:
        """Run `Mirror.resync` for all roots."""
        return await self._each(self.all, lambda one: one.resync())

    def look_again(self) -> None:
        """Run `Mirror.look_again` for all roots."""
        for mirror in self.all:
            mirror.look_again()

    def status(self) -> MirrorStatus:
        """Return the worst status of all roots."""
        return self.by_state()[0].status()

    def by_state(self) -> list[Mirror]:
        """Return all mirrors, the worst state first."""
        return sorted(self.all, key=lambda mirror: _WORST.index(mirror.status().state))

    def describe(self) -> list[MirrorInfo]:
        """Return all mirrors for `tk status --json`, the worst state first."""
        return worst_first([mirror_json.describe(mirror) for mirror in self.all])

    def progress(self) -> Progress | None:
        """Return all big transfers under way as one progress."""
        found = [one for one in (mirror.progress() for mirror in self.all) if one is not None]
        if not found:
            return None
        return Progress(
            sum(one.files_total for one in found),
            sum(one.bytes_total for one in found),
            sum(one.sent_files for one in found),
            sum(one.sent_bytes for one in found),
            started=min(one.started for one in found),
        )

    def news(self) -> list[str]:
        """Return the warnings that were not shown yet."""
        return [
            named(mirror.spec.name, text)
            for mirror in self.all
            for text in (*mirror.sizes.news(), *mirror.links.news())
        ]

    # -- by path ----------------------------------------------------------

    def holding(self, path: str) -> Mirror | None:
        """Return the mirror of an absolute local path; None outside of all roots."""
        plain = path.rstrip("/") or "/"
        return next(
            (
                mirror
                for mirror in self.all
                if mirror.local_root and relative_to_root(mirror.local_root, plain) is not None
            ),
            None,
        )

    def remote_path(self, path: str) -> str | None:
        """Return an absolute local path's remote path; None outside of all started roots."""
        mirror = self.holding(path)
        if mirror is None or not mirror.remote_root:
            return None
        below = relative_to_root(mirror.local_root, path)
        return posixpath.normpath(posixpath.join(mirror.remote_root, below or "."))

    async def explain(self, path: str) -> Explanation:
        """Run `Mirror.explain`; `remote` is the path's actual or possible remote path."""
        mirror = self.holding(path) or self.project
        found = by_policy(await mirror.explain(path), mirror.spec.symlinks)
        if found.kind == "outside" and len(self.all) > 1:
            roots = " and ".join(one.local_root for one in self.all)
            return replace(found, reason=f"it lies outside of {roots}")
        if not found.mirrored:
            return found
        there = posixpath.normpath(posixpath.join(mirror.remote_root, found.path))
        return replace(found, remote=there)

    async def resolve(
        self, paths: Sequence[str], *, theirs: bool, timeout_s: float = 120.0
    ) -> SyncReport:
        """Run `Mirror.resolve` for each path in its root."""
        groups = self._grouped(paths, self.holding)
        return await self._each(
            tuple(groups),
            lambda one: one.resolve(groups[one], theirs=theirs, timeout_s=timeout_s),
        )

    def conflicts(self) -> list[str]:
        """Return the paths that are in conflict."""
        return [_below(mirror, path) for mirror in self.all for path in mirror.status().conflicts]

    async def pull(
        self, paths: Sequence[str], *, on_progress: OnProgress = lambda progress: None
    ) -> PullReport:
        """Run `Mirror.pull` for each path in its root, one root after the other."""
        begin = time.monotonic()
        total = PullReport()
        for mirror, wanted in self._grouped(paths, self._pulls).items():
            one = await _told(mirror, mirror.pull(wanted, on_progress=on_progress))
            total = PullReport(
                (*total.pulled, *_all_below(mirror, one.pulled)),
                total.bytes + one.bytes,
                (*total.kept, *_all_below(mirror, one.kept)),
                (*total.owned, *_all_below(mirror, one.owned)),
                (*total.mirrored, *_all_below(mirror, one.mirrored)),
                (*total.refused, *_all_below(mirror, one.refused)),
                (*total.unread, *_all_below(mirror, one.unread)),
                (*total.gone, *_all_below(mirror, one.gone)),
                (*total.uncompared, *_all_below(mirror, one.uncompared)),
            )
        return replace(total, duration_s=time.monotonic() - begin)

    # -- inside -----------------------------------------------------------

    def _pulls(self, path: str) -> Mirror | None:
        """Return the mirror of a remote path, or of a local path that corresponds to one."""
        plain = posixpath.normpath(path)
        for mirror in self.all:
            root = mirror.remote_root.rstrip("/")
            if root and (plain == root or plain.startswith(root + "/")):
                return mirror
        return self.holding(path)

    def _grouped(
        self, paths: Sequence[str], holder: Callable[[str], Mirror | None]
    ) -> dict[Mirror, list[str]]:
        groups: dict[Mirror, list[str]] = {}
        for path in paths:
            # The project's own mirror has the best message for a path outside.
            groups.setdefault(holder(path) or self.project, []).append(path)
        return groups

    async def _each(
        self, mirrors: Sequence[Mirror], work: Callable[[Mirror], Awaitable[SyncReport]]
    ) -> SyncReport:
        """Run all at once, to the end even if one fails; raise the first error in root order."""
        if len(mirrors) == 1:
            return await _told(mirrors[0], work(mirrors[0]))
        begin = time.monotonic()
        results = await asyncio.gather(
            *(_told(mirror, work(mirror)) for mirror in mirrors), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        total = SyncReport(by_node=True)
        for mirror, result in zip(mirrors, results, strict=True):
            assert isinstance(result, SyncReport)
            total = _sum(total, mirror, result)
        return replace(total, duration_s=time.monotonic() - begin)


def named(name: str, text: str) -> str:
    """Return a text with the root's name before it."""
    return f"{name}: {text}" if name else text


async def _told(mirror: Mirror, work: Awaitable[T]) -> T:
    """Await `work`; an error gets the root's name."""
    try:
        return await work
    except TunnelkitError as error:
        if not mirror.spec.name:
            raise
        raise named_error(mirror.spec.name, error) from None


def named_error(name: str, error: TunnelkitError) -> TunnelkitError:
    """Return a copy of an error that begins with a name."""
    copied = copy.copy(error)
    copied.message = named(name, error.message)
    copied.args = (copied.message,)
    return copied


def worst_first(found: list[MirrorInfo]) -> list[MirrorInfo]:
    """Return mirrors sorted by their state, the worst first."""
    order = [state.value for state in _WORST]
    return sorted(found, key=lambda one: order.index(one["state"]))


def _below(mirror: Mirror, path: str) -> str:
    return os.path.join(mirror.spec.name, path)


def _all_below(mirror: Mirror, paths: Sequence[str]) -> list[str]:
    return [_below(mirror, path) for path in paths]


def _sum(total: SyncReport, mirror: Mirror, one: SyncReport) -> SyncReport:
    dirs = [where for where in (total.replaced_dir, one.replaced_dir) if where]
    return SyncReport(
        total.sent + one.sent,
        total.sent_bytes + one.sent_bytes,
        total.deleted + one.deleted,
        (*total.kept, *_all_below(mirror, one.kept)),
        (*total.replaced, *_all_below(mirror, one.replaced)),
        ", ".join(dirs) or None,
        total.proven + one.proven,
        by_node=total.by_node and one.by_node,
    )
