"""Linux's file events of one tree, read in the event loop itself.

watchdog hands each event through three threads; on a busy laptop with two cores they are a good
part of the time from a save to the node. So on Linux, for a tree on a local disk, the kernel's
queue is read directly, and its events are passed on as watchdog's event classes. Source:
inotify(7).

Every directory that is wanted has a watch, added when it appears, before its event is passed on. An
ignored tree of 50,000 directories costs nothing. A directory that is moved loses its watches and
gets new ones: its content is scanned again anyway.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from watchdog import events
from watchdog.events import FileSystemEvent

from tunnelkit.mirror.watch import cookie, inotify
from tunnelkit.mirror.watch.inotify import InotifyQueue, RawEvent

log = logging.getLogger("tunnelkit.mirror")

#: Handle events for so long at a stretch: the loop has others to serve, too.
_STRETCH_S = 0.004
#: The other half of a move comes right after the first, but maybe in the next read.
_HALF_MOVE_S = 0.01

Tell = Callable[[FileSystemEvent], None]


class _Half(NamedTuple):
    """The first half of a move."""

    cookie: int
    path: str
    is_dir: bool


class InotifyTree:
    """The watches of one tree. `begin`, then `end`; both in the loop.

    wanted: returns True if something in this directory (absolute path) may matter; called in any
        thread.
    tell: called in the loop with each event.
    on_loss: called in the loop when the kernel dropped events, before and after all existing
        directories were given a watch.
    """

    def __init__(
        self,
        root: str,
        wanted: Callable[[str], bool],
        tell: Tell,
        on_loss: Callable[[], None],
    ) -> None:
        self._root = root
        self._cookies = cookie.directories(root)
        self._wanted = wanted
        self._tell = tell
        self._on_loss = on_loss
        self._kernel = InotifyQueue()
        #: held while watches are added in a thread, and while closing
        self._lock = threading.Lock()
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._half: _Half | None = None
        self._steps: Iterator[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: set[asyncio.Handle] = set()
        self._failed = False

    async def begin(self) -> None:
        """Watch all existing directories. Raises OSError if the root can't be watched."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open)
        if self.alive():  # else it was ended meanwhile
            self._loop.add_reader(self._kernel.fd, self._ready)

    async def end(self) -> None:
        """Remove all watches; also in the middle of `begin`. Idempotent."""
        loop, self._loop = self._loop, None
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if loop is not None and self._kernel.fd >= 0:
            loop.remove_reader(self._kernel.fd)
        self._steps = None
        # To close it removes thousands of watches, and waits for those that are being added.
        await asyncio.to_thread(self._close)

    def alive(self) -> bool:
        """Return True if events arrive."""
        return self._loop is not None and self._kernel.fd >= 0 and not self._failed

    @property
    def is_behind(self) -> bool:
        """True if there are events that were read but not passed on yet."""
        return self._steps is not None

    def widen(self, directories: Iterable[str]) -> list[str]:
        """Watch these absolute paths, too. Return those that had no watch.

        Earlier changes there had no event, and they may still have no watch.
        """
        news = [path for path in directories if path not in self._watches]
        for path in news:
            self._watch(path)
        return news

    # --- in a thread

    def _open(self) -> None:
        with self._lock:
            if self._loop is None:
                return
            self._kernel.open()
            try:
                self._keep(self._root, self._kernel.watch(self._root))
                for path in self._cookies:  # also where they are ignored
                    self._watch(path)
                for _ in self._watch_below(self._root):
                    if self._loop is None:
                        return
            except BaseException:
                self._kernel.close()
                raise

    def _close(self) -> None:
        with self._lock:
            self._kernel.close()
            self._paths.clear()
            self._watches.clear()

    # --- in the loop

    def _ready(self) -> None:
        """Handle waiting events for a moment, then let the loop serve others."""
        loop = self._loop
        if loop is None or self._kernel.fd < 0:
            return
        if self._steps is None:
            self._steps = self._take()
        else:
            loop.add_reader(self._kernel.fd, self._ready)
        try:
            end = time.monotonic() + _STRETCH_S
            for _ in self._steps:
                if time.monotonic() > end:
                    loop.remove_reader(self._kernel.fd)
                    self._later(0.0, self._ready)
                    return
        except Exception as error:  # the check of `alive` starts a new one
            log.warning("file events: %s: %s", type(error).__name__, error)
            self._failed = True
            loop.remove_reader(self._kernel.fd)
        self._steps = None

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None:
            return

        def run() -> None:
            self._timers.discard(timer)
            work()

        timer = loop.call_later(delay_s, run)
        self._timers.add(timer)

    def _take(self) -> Iterator[None]:
        more = True
        while more:
            found, more = self._kernel.read()
            for heard in found:
                yield from self._event(heard)
                yield
        if self._half is not None:
            half = self._half
            self._later(_HALF_MOVE_S, lambda: self._half_is_all(half))

    def _event(self, heard: RawEvent) -> Iterator[None]:
        watch, mask, cookie, raw = heard
        if mask & inotify.OVERFLOW:
            yield from self._overflow()
            return
        half = self._half
        if half is not None and not (mask & inotify.MOVED_TO and cookie == half.cookie):
            self._half_is_all(half)
            half = None
        above = self._paths.get(watch)
        if above is None:
            return  # of a directory that is gone; a new one there was reported
        if mask & inotify.IGNORED:
            self._forget(watch)
            return
        is_dir = bool(mask & inotify.ISDIR)
        if not raw:
            self._of_itself(above, mask)
            return
        name = os.fsdecode(raw)
        path = f"{above}/{name}" if above != "/" else f"/{name}"
        if mask & inotify.MOVED_FROM:
            self._half = _Half(cookie, path, is_dir)
        elif mask & inotify.MOVED_TO:
            self._half = None
            yield from self._arrived(half, path, is_dir)
        elif mask & inotify.CREATE and is_dir:
            yield from self._appeared(path)
            self._tell(events.DirCreatedEvent(path))
        elif mask & inotify.CREATE:
            self._tell(events.FileCreatedEvent(path))
        elif mask & inotify.DELETE:
            gone = events.DirDeletedEvent if is_dir else events.FileDeletedEvent
            self._tell(gone(path))
        elif mask & inotify.ATTRIB:
            if is_dir and path not in self._watches:  # it may be open now
                yield from self._appeared(path)
                self._tell(events.DirCreatedEvent(path))
            touched = events.DirAttribEvent if is_dir else events.FileAttribEvent
            self._tell(touched(path))
        elif mask & inotify.MODIFY:
            self._tell(events.FileModifiedEvent(path))
        elif mask & inotify.CLOSE_WRITE:
            self._tell(events.FileClosedEvent(path))

    def _of_itself(self, path: str, mask: int) -> None:
        """Handle a directory's event about itself; parents report all but the root's."""
        if path != self._root:
            return
        if mask & (inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.UNMOUNT):
            self._tell(events.DirDeletedEvent(path))
        elif mask & inotify.ATTRIB:
            self._tell(events.DirAttribEvent(path))

    def _arrived(self, half: _Half | None, path: str, is_dir: bool) -> Iterator[None]:
        """Handle a move to `path`: from `half`, or from outside of the tree."""
        if is_dir:
            if half is not None:
                yield from self._left(half.path)
            yield from self._left(path)
        if half is not None:
            moved = events.DirMovedEvent if is_dir else events.FileMovedEvent
            self._tell(moved(half.path, path))
        else:  # a file is whole
            self._tell(events.DirCreatedEvent(path) if is_dir else events.FileClosedEvent(path))

    def _half_is_all(self, half: _Half) -> None:
        """Handle a move out of the tree."""
        if self._half is not half:
            return
        self._half = None
        if half.is_dir:
            for _ in self._left(half.path):
                pass
        gone = events.DirDeletedEvent if half.is_dir else events.FileDeletedEvent
        self._tell(gone(half.path))

    def _overflow(self) -> Iterator[None]:
        """Handle lost events: directories may have come without a watch, or have gone."""
        self._half = None
        self._on_loss()
        yield from self._appeared(self._root)
        self._on_loss()  # what happened before a new watch was there

    # --- watches

    def _left(self, path: str) -> Iterator[None]:
        """Drop the watches of a path that was moved.

        Another directory may be there by now, and may have been reported before (two exchanged
        names).
        """
        self._drop(path)
        yield from self._appeared(path)

    def _appeared(self, path: str) -> Iterator[None]:
        if path in self._cookies:
            self._watch(path)
        if self._wanted(path) and self._watch(path):
            yield from self._watch_below(path)

    def _watch_below(self, top: str) -> Iterator[None]:
        """Watch every wanted directory below, a step for each. Later ones have an event."""
        stack = [top]
        while stack:
            directory = stack.pop()
            try:
                with os.scandir(directory) as found:
                    below = [one.path for one in found if one.is_dir(follow_symlinks=False)]
            except OSError:
                continue
            stack += [path for path in below if self._wanted(path) and self._watch(path)]
            yield

    def _watch(self, path: str) -> bool:
        """Return True if it has a watch now. Others, over a limit, are found by `missing`."""
        try:
            self._keep(path, self._kernel.watch(path))
        except OSError:
            return False
        return True

    def _keep(self, path: str, watch: int) -> None:
        old = self._paths.get(watch)  # the same directory by another name
        if old is not None and old != path and self._watches.get(old) == watch:
            del self._watches[old]
        self._paths[watch] = path
        self._watches[path] = watch

    def _drop(self, top: str) -> None:
        """Forget the watches of a directory and of all below."""
        prefix = top.rstrip("/") + "/"
        for path in [one for one in self._watches if one == top or one.startswith(prefix)]:
            watch = self._watches[path]
            self._forget(watch)
            self._kernel.forget(watch)

    def _forget(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]
