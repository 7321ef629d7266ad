"""Who tells of one tree's events: begun, ended, begun anew; and whether it can be relied on.

On Linux's own disks inotify_tree.py, else watchdog. What waits for a network must not do so in the
event loop, so a tree on NFS is watchdog's, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.utils import BaseThread

from tunnelkit.mirror.tree.filesystem import is_local
from tunnelkit.mirror.watch import inotify_limits
from tunnelkit.mirror.watch.inotify_tree import InotifyTree

log = logging.getLogger("tunnelkit.mirror")
#: What watchdog says at its own end, of which we know.
_STOPPED = "when the thread is inactive"
_CONFIRM_S = 0.3


class Events(Protocol):
    """Tells of events, from `begin` (OSError: there is no way) to `end`."""

    async def begin(self) -> None: ...
    async def end(self) -> None: ...
    def alive(self) -> bool: ...
    def widen(self, directories: Iterable[str]) -> list[str]: ...


class EventSource:
    """Owns the source. `problem` says why events can't be relied on, or is None. wanted:
    whether something in a directory may matter. on_loss: told when the source knows that
    it has lost some."""

    def __init__(
        self,
        root: str,
        handler: FileSystemEventHandler,
        kinds: list[type[FileSystemEvent]],
        wanted: Callable[[str], bool],
        on_loss: Callable[[], None],
    ) -> None:
        self._root = root
        self._handler = handler
        self._kinds = kinds
        self._wanted = wanted
        self._on_loss = on_loss
        self._source: Events | None = None
        self._limits: dict[str, int] = {}
        self._comparable = True
        self.problem: str | None = None

    async def begin(self) -> None:
        """Watch. Never raises for want of watches: sets `problem`."""
        self.problem = None
        self._limits = inotify_limits.limits()
        # Known from now on: a cancelled begin leaves its thread running, and `end` has to end
        # what that thread begins.
        source = self._source = self._new()
        try:
            await source.begin()
        except OSError as error:
            self.problem = inotify_limits.explain(error)
            await self.end()

    def _new(self) -> Events:
        if sys.platform == "linux" and is_local(self._root):
            return InotifyTree(self._root, self._wanted, self._handler.dispatch, self._on_loss)
        return Watchdog(self._root, self._handler, self._kinds)

    async def end(self) -> None:
        """End it, also in the middle of its begin. Idempotent."""
        source, self._source = self._source, None
        if source is not None:
            await source.end()

    def alive(self) -> bool:
        """Whether it listens."""
        return self._source is not None and self._source.alive()

    @property
    def is_late(self) -> bool:
        """Whether events come through threads: some of what has happened may not be told yet."""
        return isinstance(self._source, Watchdog)

    @property
    def is_behind(self) -> bool:
        """Whether it is in the middle of telling."""
        return isinstance(self._source, InotifyTree) and self._source.is_behind

    def widen(self, directories: Iterable[str]) -> list[str]:
        """Watch these absolute paths, too; those that had no watch."""
        return self._source.widen(directories) if self._source is not None else []

    def limits_changed(self) -> bool:
        """Whether the system's limits were changed since it was begun."""
        return inotify_limits.limits() != self._limits

    async def missing(self, paths: Iterable[str]) -> tuple[str, ...]:
        """As `blind`, but not those that were only too new."""
        found = await self.blind(paths)
        if found:
            await asyncio.sleep(_CONFIRM_S)
            found = await self.blind(found)
        return found

    async def blind(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Directories at or below these absolute paths that have no watch now. watchdog says
        nothing of those: a limit was reached; the directory was moved while its watches were
        added; it was moved into the tree, which an old watchdog doesn't see."""
        return tuple(await asyncio.to_thread(self._missing, list(paths)))

    async def despair(self, missing: tuple[str, ...]) -> None:
        """These have no watch though the observer is new: find out why."""
        if await asyncio.to_thread(inotify_limits.exhausted, self._root):
            self.problem = inotify_limits.explain_unwatched(len(missing), missing[0])
        else:
            self._comparable = False  # this file system's inode numbers are not the kernel's

    def _missing(self, paths: list[str]) -> list[str]:
        watched = inotify_limits.watched_inodes() if self._comparable else None
        if watched is None or self._source is None:
            return []
        return [
            missing
            for path in paths
            for missing in inotify_limits.unwatched(path, watched, self._wanted)
        ]


class Watchdog:
    """watchdog's observer of one tree, and its threads.

    On Linux it gets a reader of the kernel's queue of its own: the one that watchdog shares
    ends for good, unseen, when it stumbles (7.1: a directory that left the tree is removed,
    after another of its name was), and every later observer would hear nothing.
    """

    def __init__(
        self, root: str, handler: FileSystemEventHandler, kinds: list[type[FileSystemEvent]]
    ) -> None:
        self._root = root
        self._handler = handler
        self._kinds = kinds
        self._observer: BaseObserver | None = None
        self._reader: BaseThread | None = None
        #: held while it is begun or ended: never both at once
        self._lock = threading.Lock()

    async def begin(self) -> None:
        """Walks the whole tree to add its watches. Raises OSError."""
        # watchdog's way to say that a directory was moved; it floods the log.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        observer, self._reader = _new_observer()
        self._observer = observer
        await asyncio.to_thread(self._begin, observer)

    async def end(self) -> None:
        """End it, also in the middle of its begin. Idempotent."""
        observer, self._observer = self._observer, None
        reader, self._reader = self._reader, None
        if observer is not None:
            await asyncio.to_thread(self._end, observer, reader)

    def alive(self) -> bool:
        """Whether all its threads run."""
        observer, reader = self._observer, self._reader
        return (
            observer is not None
            and observer.is_alive()
            and (reader is None or reader.is_alive())
            and all(emitter.is_alive() for emitter in list(observer.emitters))
        )

    def widen(self, directories: Iterable[str]) -> list[str]:
        """It watches all there is."""
        return []

    def _begin(self, observer: BaseObserver) -> None:
        with self._lock:
            if observer is self._observer:
                observer.schedule(
                    self._handler, self._root, recursive=True, event_filter=self._kinds
                )
                observer.start()

    def _end(self, observer: BaseObserver, reader: BaseThread | None) -> None:
        with self._lock:
            try:
                observer.stop()
            except LookupError as error:  # of its own: it loses count where names are exchanged
                log.debug("watchdog's end: %r", error)
                observer.event_queue.put(observer.stop_event)
            if observer.is_alive():
                observer.join(5.0)
            if reader is not None:
                reader.stop()
                reader.join(5.0)


def _new_observer() -> tuple[BaseObserver, BaseThread | None]:
    """watchdog's observer for this system, and the thread that it reads by, which runs.
    Raises OSError."""
    if sys.platform != "linux":
        return Observer(), None
    from watchdog.observers.inotify import InotifyEmitter
    from watchdog.observers.inotify_c import InotifyFD

    reader = InotifyFD()
    reader.start()

    class Emitter(InotifyEmitter):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, inotify_fd=reader, **settings)

    return BaseObserver(Emitter), reader


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
        if _STOPPED not in record.msg:
            self._on_complaint()


def identity(path: str) -> tuple[int, int] | None:
    """Which directory this is, whatever its name; None if it is gone."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino
