"""Watcher: reports from file events which paths to scan, and when a save is over.

Only the paths of events are used: a scan finds out what is at a path. Events are hints: watchdog
and the kernel lose some. Whatever may have been lost ends in `DirtyPaths.everything`, for which the
caller scans the whole tree.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable

from watchdog import events
from watchdog.events import FileSystemEvent, FileSystemEventHandler

from tunnelkit.mirror.watch import cookie
from tunnelkit.mirror.watch.coalescer import DirtyPaths, EventCoalescer, EventKind
from tunnelkit.mirror.watch.event_kinds import CHANGES, KINDS, MOVES, is_whole, str_of
from tunnelkit.mirror.watch.event_source import Complaints, EventSource, MakeSource, identity
from tunnelkit.mirror.watch.git_activity import GitActivity
from tunnelkit.mirror.watch.suspend_detector import SuspendDetector

_TICK_S = 1.0
_SECOND_LOOK_S = 0.3  # a new directory: its files may be older than its watch
_GIT_STEP_S = 0.01
_LATE_S = 0.5  # for events that are on their way
_BEHIND_S = 0.25  # for events that were read, where they do not come to an end
_REVIVAL_S = 60.0  # observers that die more often than this are given up
_LOST_COOKIES = 3
_DEAF_S = 10.0


class Watcher(FileSystemEventHandler):
    """Gathers changes below `root`.

    interesting: called in the observer's thread with an absolute path; returns False for paths to
        ignore.
    wanted: the same for a directory and everything in it.
    known: returns True if the last scan found a file at that relative path.
    source: makes the source of events.

    `wake` is called in the loop at the first event of a burst. The caller must then clear what
    `wake` has set, call `settle` and `take`, and scan; in this order nothing is lost.
    """

    def __init__(
        self,
        root: str,
        wake: Callable[[], None],
        *,
        interesting: Callable[[str], bool],
        wanted: Callable[[str], bool] = lambda path: True,
        known: Callable[[str], bool] = lambda path: False,
        source: MakeSource = EventSource,
    ) -> None:
        self._root = root
        self._prefix = root.rstrip("/") + "/"
        self._wake = wake
        self._interesting = interesting
        self._known = known
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._observation = source(root, self, KINDS, wanted, self._overflow)
        self._complaints = Complaints(self._overflow)
        #: True while `settle` waits for `_whole`
        self._resting = False
        self._whole = asyncio.Event()
        self._gathering = EventCoalescer(closes=sys.platform == "linux")
        self._git = GitActivity(root, self._gathering.many)
        self._cookies: dict[str, asyncio.Future[None]] = {}
        self._lost_cookies = 0
        self._task: asyncio.Task[None] | None = None
        self._second_looks: set[asyncio.TimerHandle] = set()
        #: new directories that may have no watch
        self._unchecked: set[str] = set()
        self._root_id: tuple[int, int] | None = None
        self._revived_at: float | None = None
        self._anew = False
        self._modes: dict[str, int | None] = {}

    @property
    def problem(self) -> str | None:
        """Reason why events can't be relied on (the caller must poll), and what to do; or None."""
        return self._observation.problem

    def alive(self) -> bool:
        """Return True if events can be relied on."""
        return self.problem is None and not self._anew and self._observation.alive()

    async def start(self) -> None:
        """Start to watch. Never raises for lack of watches: sets `problem`."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._root_id = identity(self._root)
        self._git.begin()
        self._complaints.attach()
        cookie.sweep(self._root)
        await self._observation.begin()
        self._task = asyncio.create_task(self._tick(), name="tk-watch")

    async def stop(self) -> None:
        """Stop, also in the middle of the start. Idempotent."""
        self._loop = None
        self._complaints.detach()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        for timer in self._second_looks:
            timer.cancel()
        self._second_looks.clear()
        await self._observation.end()

    def take(self) -> DirtyPaths:
        """Return what was gathered since the last call; a new directory twice (late watch)."""
        self._root_changed()
        found, trees = self._gathering.take()
        self._look_again_at(trees)
        if found.everything is None and not self.alive():
            return DirtyPaths(everything="unwatched")
        return found

    def widen(self, directories: Iterable[str]) -> None:
        """Watch these relative paths ("a/b/"; "": the root), which were ignored until now."""
        paths = (self._prefix + path.rstrip("/") for path in directories if path)
        news = [self._relative(path) for path in self._observation.widen(paths)]
        self._unchecked.update(news)
        now = time.monotonic()
        first = [self._gathering.note(path, EventKind.AGAIN, now) for path in news]
        if any(first):
            self._wake()

    async def settle(self, git_step_s: float | None = None) -> bool:
        """Return True once a save is over: no open file, git not at work, and quiet for a moment.

        It returns also if that never happens: after 0.25 s for a few files, 1 s for many, 10 s for
        a git that does nothing, 120 s for another.

        git_step_s: while git is at work, return False after so many seconds; the caller calls
            again.
        """
        begin = time.monotonic()
        while True:
            now = time.monotonic()
            if self._git.at_work(now):
                if git_step_s is not None and now - begin > git_step_s:
                    return False
                self._gathering.put_off(now)
                await asyncio.sleep(_GIT_STEP_S)
                continue
            rest_s = self._gathering.rest_s(now)
            if rest_s <= 0 and self._observation.is_behind and now - begin < _BEHIND_S:
                await asyncio.sleep(0)  # the source continues in the loop's next round
                continue
            if self._git.waited_for or rest_s <= 0:
                break
            await self._rest(rest_s)
        worked = self._git.worked(burst=self._gathering.is_burst)
        settled = False
        if not worked and self._observation.is_late and self._git.worked(burst=True):
            # Git may have finished although only its first events have arrived.
            index = self._git.index()
            settled = await self.flush(_LATE_S) and self._git.index() == index
            worked = not settled or self._gathering.is_burst
        if worked:
            # A scan finds what it did; its events may arrive later.
            self._everything("git")
        self._git.settled(whole=worked or settled)
        self._gathering.settled()
        return True

    async def git_began(self) -> bool:
        """Return True if git was at work during the scan that followed `take`.

        The scan may have seen half of its work. Then this also waits for git, as `settle` does.
        """
        if not self._git.began():
            return False
        await self.settle()
        return True

    async def _rest(self, rest_s: float) -> None:
        """Wait so long, or until a file is closed or moved into place."""
        self._whole.clear()
        self._resting = True
        try:
            async with asyncio.timeout(rest_s):
                await self._whole.wait()
        except TimeoutError:
            pass
        finally:
            self._resting = False

    async def flush(self, timeout_s: float = 1.0) -> bool:
        """Return True once all earlier events have been seen, so that `take` is complete.

        False: unknown, so scan. That is also the case if a file was just moved out of the tree:
        watchdog then holds all events back for 0.5 s.
        """
        if not self.alive():
            return False
        path = cookie.place(self._root)
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cookies[path] = seen
        try:
            cookie.write(path)
        except OSError:
            self._cookies.pop(path, None)
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await seen
        except TimeoutError:
            self._lost_cookies += 1
            return False
        finally:
            self._cookies.pop(path, None)
            cookie.remove(path)
        self._lost_cookies = 0
        new = self._unchecked | self._gathering.trees()
        if new:
            paths = [self._prefix + path for path in new]
            if await self._observation.blind(paths):
                return False
            self._unchecked.difference_update(new)
        return self.alive()

    # --- in the observer's thread, or the loop

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Note the paths to scan; wake the loop once per burst."""
        now = time.monotonic()
        source = str_of(event.src_path)
        if cookie.is_cookie(source):
            self._see_cookie(source)
            return
        if self._gathering.count(now):
            self._call(self._wake)
        kind = type(event)
        if kind in MOVES:
            gone, placed = MOVES[kind]
            target = str_of(event.dest_path)
            if gone is EventKind.GONE and self._known(self._relative(target)):
                gone, placed = EventKind.LEFT, EventKind.DONE
            # The new path first: the loop may scan between the two.
            self._note(target, placed, now)
            self._note(source, gone, now)
        elif kind is not events.DirModifiedEvent or self._other_mode(source):
            change = CHANGES.get(kind, EventKind.TOUCHED)
            if change is EventKind.CREATED and is_whole(source):
                change = EventKind.PLACED
            self._note(source, change, now)

    def _relative(self, path: str) -> str:
        return path[len(self._prefix) :]

    def _note(self, path: str, change: EventKind, now: float) -> None:
        if not path.startswith(self._prefix):
            if path != self._root or change is not EventKind.TOUCHED:
                self._everything("root")
            return
        relative = self._relative(path)
        wanted = self._gathering.knows(relative) or self._interesting(path)
        if wanted and self._gathering.note(relative, change, now):
            self._call(self._wake)
        elif self._resting and change in (EventKind.DONE, EventKind.PLACED):
            self._resting = False
            self._call(self._whole.set)

    def _other_mode(self, path: str) -> bool:
        """Return True if "modified" is about the directory itself, not its content."""
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return False
        known = self._modes.get(path)
        self._modes[path] = mode
        return mode != known

    def _see_cookie(self, path: str) -> None:
        seen = self._cookies.pop(path, None)
        if seen is not None:
            self._call(lambda: None if seen.done() else seen.set_result(None))

    # --- in any thread

    def _everything(self, reason: str) -> None:
        if self._gathering.all(reason, time.monotonic()):
            self._call(self._wake)

    def _overflow(self) -> None:
        self._everything("overflow")

    def _call(self, what: Callable[[], object]) -> None:
        loop = self._loop
        if loop is None:
            return
        if threading.get_ident() == self._loop_thread:
            what()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(what)

    # --- in the loop

    def _look_again_at(self, trees: Iterable[str]) -> None:
        paths, loop = list(trees), self._loop
        if not paths or loop is None:
            return
        self._unchecked.update(paths)

        def look() -> None:
            self._second_looks.discard(timer)
            now = time.monotonic()
            first = [self._gathering.note(path, EventKind.AGAIN, now) for path in paths]
            if any(first):
                self._wake()

        timer = loop.call_later(_SECOND_LOOK_S, look)
        self._second_looks.add(timer)

    def _root_changed(self) -> bool:
        """Return True if the root is another directory than at the last call."""
        found = identity(self._root)
        if found == self._root_id:
            return False
        self._root_id = found
        self._everything("root")
        return True

    async def _tick(self) -> None:
        """Check once a second: sleep of the laptop, a dead observer, another root."""
        pauses = SuspendDetector(_TICK_S)
        watched = self._root_id
        await self._check([self._root])
        while True:
            await asyncio.sleep(_TICK_S)
            if pauses.noticed():
                self._everything("sleep")
            self._root_changed()
            if self._root_id is None:
                continue  # there is nothing to watch
            if self._root_id != watched or (self.problem and self._observation.limits_changed()):
                watched = self._root_id
                await self._begin_anew()
                await self._check([self._root])
            elif self.problem is None and await self._deaf():
                await self._revive()
            elif self._unchecked:
                paths, self._unchecked = self._unchecked, set()
                await self._check([self._prefix + path for path in paths])

    async def _deaf(self) -> bool:
        if not self._observation.alive():
            return True
        # The callers' time-outs may have been too short: try once more with a long one.
        if self._lost_cookies < _LOST_COOKIES:
            return False
        await self.flush(_DEAF_S)
        return self._lost_cookies > 0  # a cookie that is seen resets it

    async def _revive(self) -> None:
        """Replace an observer that died or gets no events, but not again and again."""
        now, last = time.monotonic(), self._revived_at
        self._revived_at = now
        self._lost_cookies = 0
        if last is not None and now - last < _REVIVAL_S:
            self._observation.problem = "file events stopped; changes are looked for instead"
            self._everything("unwatched")
        else:
            await self._begin_anew()

    async def _check(self, directories: Iterable[str]) -> None:
        """Notice directories that have no watch."""
        if self.problem is not None:
            return
        if await self._observation.missing(directories):
            await self._begin_anew()
            missing = await self._observation.missing([self._root])
            if missing:
                await self._observation.despair(missing)
                self._everything("unwatched")

    async def _begin_anew(self) -> None:
        self._anew = True
        try:
            await self._observation.restart()
            # Before events count again: changes in between had no event.
            self._everything("restart")
        finally:
            self._anew = False
