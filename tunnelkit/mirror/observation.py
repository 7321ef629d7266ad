"""watchdog's observer of one tree: begun, ended, begun anew; and whether it can be relied on."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from tunnelkit.mirror import watches

_CONFIRM_S = 0.3


class Observation:
    """Owns the observer. `problem` says why events can't be relied on, or is None."""

    def __init__(
        self, root: str, handler: FileSystemEventHandler, kinds: list[type[FileSystemEvent]]
    ) -> None:
        self._root = root
        self._handler = handler
        self._kinds = kinds
        self._observer: BaseObserver | None = None
        #: held while an observer is begun or ended: never both at once
        self._lock = threading.Lock()
        self._limits: dict[str, int] = {}
        self._comparable = True
        self.problem: str | None = None

    async def begin(self) -> None:
        """Watch. Never raises for want of watches: sets `problem`."""
        self.problem = None
        self._limits = watches.limits()
        # watchdog's way to say that a directory was moved; it floods the log.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        try:
            # Known from now on: a cancelled begin leaves its thread running, and `end` has
            # to end what that thread begins.
            observer = self._observer = Observer()
            # Walks the whole tree to add its watches.
            await asyncio.to_thread(self._begin, observer)
        except OSError as error:
            self.problem = watches.explain(error)
            await self.end()

    async def end(self) -> None:
        """End it, also in the middle of its begin. Idempotent."""
        observer, self._observer = self._observer, None
        if observer is not None:
            await asyncio.to_thread(self._end, observer)

    def alive(self) -> bool:
        """Whether all its threads that are known run."""
        observer = self._observer
        return (
            observer is not None
            and observer.is_alive()
            and all(emitter.is_alive() for emitter in list(observer.emitters))
        )

    def limits_changed(self) -> bool:
        """Whether the system's limits were changed since it was begun."""
        return watches.limits() != self._limits

    async def missing(
        self, paths: Iterable[str], interesting: Callable[[str], bool]
    ) -> tuple[str, ...]:
        """As `blind`, but not those that were only too new."""
        found = await self.blind(paths, interesting)
        if found:
            await asyncio.sleep(_CONFIRM_S)
            found = await self.blind(found, interesting)
        return found

    async def blind(
        self, paths: Iterable[str], interesting: Callable[[str], bool]
    ) -> tuple[str, ...]:
        """Directories at or below these absolute paths that have no watch now. watchdog says
        nothing of those: a limit was reached; the directory was moved while its watches were
        added; it was moved into the tree, which an old watchdog doesn't see."""
        return tuple(await asyncio.to_thread(self._missing, list(paths), interesting))

    async def despair(self, missing: tuple[str, ...]) -> None:
        """These have no watch though the observer is new: find out why."""
        if await asyncio.to_thread(watches.exhausted, self._root):
            self.problem = watches.explain_unwatched(len(missing), missing[0])
        else:
            self._comparable = False  # this file system's inode numbers are not the kernel's

    def _missing(self, paths: list[str], interesting: Callable[[str], bool]) -> list[str]:
        watched = watches.watched_inodes() if self._comparable else None
        if watched is None or self._observer is None:
            return []
        return [
            missing for path in paths for missing in watches.unwatched(path, watched, interesting)
        ]

    def _begin(self, observer: BaseObserver) -> None:
        with self._lock:
            if observer is self._observer:
                observer.schedule(
                    self._handler, self._root, recursive=True, event_filter=self._kinds
                )
                observer.start()

    def _end(self, observer: BaseObserver) -> None:
        with self._lock:
            observer.stop()
            if observer.is_alive():
                observer.join(5.0)


class Complaints(logging.Handler):
    """Notices what watchdog itself says about lost events (7.1 does, older ones don't)."""

    def __init__(self, on_complaint: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_complaint = on_complaint
        self._logger = logging.getLogger("watchdog.observers")

    def attach(self) -> None:
        self._logger.addHandler(self)

    def detach(self) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._on_complaint()


def identity(path: str) -> tuple[int, int] | None:
    """Which directory this is, whatever its name; None if it is gone."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino
