"""Event source of one tree: start, stop, restart, and whether its events are complete.

Uses inotify_tree.py on local Linux disks, else watchdog. Calls that may wait for a network must not
run in the event loop, so a tree on NFS uses watchdog, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Protocol

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.utils import BaseThread

from tunnelkit.mirror.tree.filesystem import is_local
from tunnelkit.mirror.watch import inotify_limits
from tunnelkit.mirror.watch.inotify_tree import InotifyTree

log = logging.getLogger("tunnelkit.mirror")
#: Part of watchdog's warning at its own end, which is expected.
_STOPPED = "when the thread is inactive"
_CONFIRM_S = 0.3


class Events(Protocol):
    """Sends events from `begin` (raises OSError if it can't) to `end`."""

    async def begin(self) -> None:
        """Start to watch."""

    async def end(self) -> None:
        """Stop. Idempotent."""

    def alive(self) -> bool:
        """Return True if events arrive."""
        ...

    def widen(self, directories: Iterable[str]) -> list[str]:
        """Watch these absolute paths, too. Return those that had no watch."""
        ...


class Source(Protocol):
    """A source as its watcher uses it: see the methods of EventSource."""

    problem: str | None

    async def begin(self) -> None:
        """Start to watch."""

    async def end(self) -> None:
        """Stop."""

    async def restart(self) -> None:
        """End, and begin again."""

    def alive(self) -> bool:
        """Return True if events arrive."""
        ...

    @property
    def is_late(self) -> bool:
        """True if events come through threads."""
        ...

    @property
    def is_behind(self) -> bool:
        """True if it is in the middle of handing out events."""
        ...

    def widen(self, directories: Iterable[str]) -> list[str]:
        """Watch these absolute paths, too."""
        ...

    def limits_changed(self) -> bool:
        """Return True if the system's limits were changed since the start."""
        ...

    async def missing(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Run `blind`, without directories that were only too new."""
        ...

    async def blind(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the directories that have no watch now."""
        ...

    async def despair(self, missing: tuple[str, ...]) -> None:
        """Find out why these have no watch."""


class MakeSource(Protocol):
    """Makes a source; the parameters are those of EventSource."""

    def __call__(
        self,
        root: str,
        handler: FileSystemEventHandler,
        kinds: list[type[FileSystemEvent]],
        wanted: Callable[[str], bool],
        on_loss: Callable[[], None],
        /,
    ) -> Source:
        """Return a source that has not begun."""
        ...


class EventSource:
    """Owns the source. `problem` says why events can't be relied on, or is None.

    wanted: returns True if something in a directory may matter.
    on_loss: called when the source has lost events.
    """

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
        """Start to watch. Never raises for lack of watches: sets `problem`."""
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
        """Stop, also in the middle of its begin. Idempotent."""
        source, self._source = self._source, None
        if source is not None:
            await source.end()

    async def restart(self) -> None:
        """End, and begin again."""
        await self.end()
        await self.begin()

    def alive(self) -> bool:
        """Return True if events arrive."""
        return self._source is not None and self._source.alive()

    @property
    def is_late(self) -> bool:
        """True if events come through threads: some may not have arrived yet."""
        return isinstance(self._source, Watchdog)

    @property
    def is_behind(self) -> bool:
        """True if it is in the middle of handing out events."""
        return isinstance(self._source, InotifyTree) and self._source.is_behind

    def widen(self, directories: Iterable[str]) -> list[str]:
        """Watch these absolute paths, too. Return those that had no watch."""
        return self._source.widen(directories) if self._source is not None else []

    def limits_changed(self) -> bool:
        """Return True if the system's limits were changed since the start."""
        return inotify_limits.limits() != self._limits

    async def missing(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Run `blind`, without directories that were only too new."""
        found = await self.blind(paths)
        if found:
            await asyncio.sleep(_CONFIRM_S)
            found = await self.blind(found)
        return found

    async def blind(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the directories at or below these absolute paths that have no watch now.

        watchdog does not report them: a limit was reached; the directory was moved while its
        watches were added; or it was moved into the tree, which an old watchdog doesn't see.
        """
        return tuple(await asyncio.to_thread(self._missing, list(paths)))

    async def despair(self, missing: tuple[str, ...]) -> None:
        """Find out why these have no watch though the observer is new."""
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
    """Watchdog's observer of one tree, and its threads.

    On Linux it gets its own reader of the kernel's queue. The reader that watchdog shares ends
    silently when it fails (7.1: a directory that left the tree is removed, after another of its
    name was), and every later observer would get no events.

    Ignored directories are watched, too: with one recursive watch watchdog leaves none out, and
    with a watch for each directory it starts a thread for each.
    """

    def __init__(
        self, root: str, handler: FileSystemEventHandler, kinds: list[type[FileSystemEvent]]
    ) -> None:
        self._root = root
        self._handler = handler
        self._kinds = kinds
        self._observer: BaseObserver | None = None
        self._reader: BaseThread | None = None
        #: held by begin and end: never both at once
        self._lock = threading.Lock()

    async def begin(self) -> None:
        """Walk the whole tree to add its watches. Raises OSError."""
        # watchdog warns of each moved directory; that floods the log.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        observer, self._reader = _new_observer()
        self._observer = observer
        await asyncio.to_thread(self._begin, observer)

    async def end(self) -> None:
        """Stop, also in the middle of its begin. Idempotent."""
        observer, self._observer = self._observer, None
        reader, self._reader = self._reader, None
        if observer is not None:
            await asyncio.to_thread(self._end, observer, reader)

    def alive(self) -> bool:
        """Return True if all its threads run."""
        observer, reader = self._observer, self._reader
        return (
            observer is not None
            and observer.is_alive()
            and (reader is None or reader.is_alive())
            and all(emitter.is_alive() for emitter in list(observer.emitters))
        )

    def widen(self, directories: Iterable[str]) -> list[str]:
        """Return nothing: it watches all directories."""
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
            except LookupError as error:  # its own fault: it loses count of exchanged names
                log.debug("watchdog's end: %r", error)
                observer.event_queue.put(observer.stop_event)
            if observer.is_alive():
                observer.join(5.0)
            if reader is not None:
                reader.stop()
                reader.join(5.0)


def _new_observer() -> tuple[BaseObserver, BaseThread | None]:
    """Return watchdog's observer for this system, and its running reader thread.

    Raises OSError.
    """
    if sys.platform != "linux":
        return Observer(), None
    from watchdog.observers.inotify import InotifyEmitter
    from watchdog.observers.inotify_c import InotifyFD

    reader = InotifyFD()
    reader.start()
    return BaseObserver(InotifyEmitter, inotify_fd=reader), reader


class Complaints(logging.Handler):
    """Notices warnings that watchdog logs about lost events (7.1 does, older ones don't)."""

    def __init__(self, on_complaint: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_complaint = on_complaint
        self._logger = logging.getLogger("watchdog.observers")

    def attach(self) -> None:
        """Listen to the logger of watchdog."""
        self._logger.addHandler(self)

    def detach(self) -> None:
        """Stop listening."""
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Report a warning."""
        if _STOPPED not in record.msg:
            self._on_complaint()


def identity(path: str) -> tuple[int, int] | None:
    """Return the identity of a directory, whatever its name; None if it is gone."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino
