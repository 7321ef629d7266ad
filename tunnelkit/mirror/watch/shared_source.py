"""One source of events for several watchers of a root: the kernel has one watch a directory.

Each watcher gathers, settles and flushes for itself, as with a source of its own. All that one of
them does to the source which the others would have to know ends in a full scan by those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from watchdog.events import FileSystemEvent, FileSystemEventHandler

from tunnelkit.mirror.watch.event_source import EventSource
from tunnelkit.mirror.watch.watcher import Watcher


class MakeWatch(Protocol):
    """Makes the watcher of a root; the parameters are those of `Watcher`."""

    def __call__(
        self,
        root: str,
        wake: Callable[[], None],
        *,
        interesting: Callable[[str], bool],
        wanted: Callable[[str], bool],
        known: Callable[[str], bool],
    ) -> Watcher:
        """Return a watcher that was not started."""
        ...


class SharedWatches:
    """Makes watchers; those of one root share their source."""

    def __init__(self) -> None:
        self._sources: dict[str, _Shared] = {}

    def watch(
        self,
        root: str,
        wake: Callable[[], None],
        *,
        interesting: Callable[[str], bool],
        wanted: Callable[[str], bool],
        known: Callable[[str], bool],
    ) -> Watcher:
        """Return a watcher that was not started; see MakeWatch."""
        shared = self._sources.setdefault(root, _Shared())
        return Watcher(
            root, wake, interesting=interesting, wanted=wanted, known=known, source=shared.share
        )


class _Shared:
    """The source, while at least one share has begun."""

    def __init__(self) -> None:
        self.shares: tuple[SourceShare, ...] = ()
        self.real: EventSource | None = None
        #: held by begin, end and restart
        self.lock = asyncio.Lock()
        self.renewals = 0

    def share(
        self,
        root: str,
        handler: FileSystemEventHandler,
        kinds: list[type[FileSystemEvent]],
        wanted: Callable[[str], bool],
        on_loss: Callable[[], None],
    ) -> SourceShare:
        """Return one watcher's share; the parameters are those of EventSource."""

        def make() -> EventSource:
            return EventSource(root, _ToAll(self), kinds, self._wanted, self._lost)

        return SourceShare(self, make, handler, wanted, on_loss)

    def _wanted(self, path: str) -> bool:
        return any(one.wanted(path) for one in self.shares)

    def _lost(self) -> None:
        for one in self.shares:
            one.on_loss()


class _ToAll(FileSystemEventHandler):
    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    def dispatch(self, event: FileSystemEvent) -> None:
        for one in self._shared.shares:
            one.handler.dispatch(event)


class SourceShare:
    """One watcher's share of a source; see the methods of EventSource."""

    def __init__(
        self,
        shared: _Shared,
        make: Callable[[], EventSource],
        handler: FileSystemEventHandler,
        wanted: Callable[[str], bool],
        on_loss: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._make = make
        self.handler = handler
        self.wanted = wanted
        self.on_loss = on_loss

    @property
    def _real(self) -> EventSource | None:
        return self._shared.real if self in self._shared.shares else None

    @property
    def problem(self) -> str | None:
        """See EventSource."""
        return self._real.problem if self._real is not None else None

    @problem.setter
    def problem(self, problem: str | None) -> None:
        """See EventSource."""
        if self._real is not None:
            self._real.problem = problem

    async def begin(self) -> None:
        """Get events from now on; the first one begins the source."""
        shared = self._shared
        async with shared.lock:
            if self not in shared.shares:
                shared.shares = (*shared.shares, self)
            if shared.real is None:
                shared.real = self._make()
                await shared.real.begin()

    async def end(self) -> None:
        """Get no more events; the last one ends the source. Idempotent."""
        shared = self._shared
        async with shared.lock:
            shared.shares = tuple(one for one in shared.shares if one is not self)
            if not shared.shares and shared.real is not None:
                real, shared.real = shared.real, None
                await real.end()

    async def restart(self) -> None:
        """Begin the source again, unless another watcher has just done so. All scan everything."""
        shared = self._shared
        renewals = shared.renewals
        async with shared.lock:
            if shared.real is None or (renewals != shared.renewals and shared.real.alive()):
                return
            shared.renewals += 1
            await shared.real.restart()
            for one in shared.shares:
                one.on_loss()

    def alive(self) -> bool:
        """Return True if events arrive."""
        return self._real is not None and self._real.alive()

    @property
    def is_late(self) -> bool:
        """See EventSource."""
        return self._real is not None and self._real.is_late

    @property
    def is_behind(self) -> bool:
        """See EventSource."""
        return self._real is not None and self._real.is_behind

    def widen(self, directories: Iterable[str]) -> list[str]:
        """Watch these, too. Another watcher may have scanned them before: it scans everything."""
        news = self._real.widen(directories) if self._real is not None else []
        if news:
            for one in self._shared.shares:
                if one is not self:
                    one.on_loss()
        return news

    def limits_changed(self) -> bool:
        """See EventSource."""
        return self._real is not None and self._real.limits_changed()

    async def missing(self, paths: Iterable[str]) -> tuple[str, ...]:
        """See EventSource."""
        return await self._real.missing(paths) if self._real is not None else ()

    async def blind(self, paths: Iterable[str]) -> tuple[str, ...]:
        """See EventSource."""
        return await self._real.blind(paths) if self._real is not None else ()

    async def despair(self, missing: tuple[str, ...]) -> None:
        """See EventSource."""
        if self._real is not None:
            await self._real.despair(missing)
