"""File events, as hints that something changed; and how bursts become one.

The events' own content is not used: watchdog's queue drops events without a word when
it is full, so a rescan tells what changed. An event only says when to look.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

# Without opened and read-only-closed events, which our own reading causes, and without
# those of a directory whose content changed: the content has its own.
_KINDS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]


class Watcher(FileSystemEventHandler):
    """Wakes the loop when something below `root` changes that `interesting(path)` (called
    in the observer's thread, with an absolute path) does not wave through.

    `problem` says why there are no events (then the caller must poll), or is None.
    """

    def __init__(
        self, root: str, wake: Callable[[], None], *, interesting: Callable[[str], bool]
    ) -> None:
        self._root = root
        self._wake = wake
        self._interesting = interesting
        self._observer: BaseObserver | None = None
        #: held while an observer is begun or ended: never both at once
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first = self._last = 0.0
        self._armed = True
        self.problem: str | None = None

    async def start(self) -> None:
        """Watch. Never raises for want of watches: sets `problem`."""
        self._loop = asyncio.get_running_loop()
        # Known from now on: a cancelled start leaves its thread running, and `stop` has to
        # end what that thread begins.
        observer = self._observer = Observer()
        try:
            # Walks the whole tree to add its watches.
            await asyncio.to_thread(self._begin, observer)
        except OSError as error:
            self.problem = f"file events can't be had ({error.strerror or error})"
            await self._stop_observer()

    def alive(self) -> bool:
        return self._observer is not None and self._observer.is_alive()

    async def stop(self) -> None:
        """End it, also in the middle of its start. Idempotent."""
        self._loop = None
        await self._stop_observer()

    async def _stop_observer(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            await asyncio.to_thread(self._end, observer)

    def _begin(self, observer: BaseObserver) -> None:
        with self._lock:
            if observer is self._observer:
                observer.schedule(self, self._root, recursive=True, event_filter=_KINDS)
                observer.start()

    def _end(self, observer: BaseObserver) -> None:
        with self._lock:
            observer.stop()
            if observer.is_alive():
                observer.join(5.0)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """In the observer's thread: note the time; wake the loop once per burst."""
        names = {str_of(event.src_path), str_of(event.dest_path)} - {""}
        if not any(self._interesting(name) for name in names):
            return
        self._last = time.monotonic()
        loop = self._loop
        if self._armed and loop is not None:
            self._armed = False
            self._first = self._last
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                pass  # the loop has just ended

    async def settle(self, *, quiet_s: float, limit_s: float) -> None:
        """Return once the burst is over: no event for `quiet_s`, or `limit_s` after its first."""
        while not self._armed:
            now = time.monotonic()
            rest_s = min(self._last + quiet_s, self._first + limit_s) - now
            if rest_s <= 0:
                break
            await asyncio.sleep(rest_s)
        self._armed = True


def str_of(path: str | bytes) -> str:
    """watchdog's paths are str or bytes."""
    return path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
