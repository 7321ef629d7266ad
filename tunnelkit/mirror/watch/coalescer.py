"""Coalesce file events into paths to scan, and tell when a burst of them is over.

Pure bookkeeping: no clock and no thread of its own. The observer's thread adds events, the event
loop takes them. Times are in seconds of one monotonic clock.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass

#: For more paths than this a full scan is faster.
MANY_PATHS = 500
#: With so many events at once the kernel may have dropped some (see `EventCoalescer`).
MANY_EVENTS = 4_000
_DRAIN_PER_S = 500.0

_QUIET_S = 0.002  # after a file was closed or moved into place
_QUIET_BLIND_S = 0.02  # where there are no close events
_BURST_PATHS = 20
_BURST_QUIET_S = 0.03
_BURST_LIMIT_S = 1.0  # from its first event: it may never end
_FEW_LIMIT_S = 0.25
_OPEN_S = 0.05  # how long to wait for a file that is being written
_GONE_S = 0.1  # likewise for a file that some editors remove before they write it again
_SLOW_S = 0.25  # how often a file counts that is written without end
_STEP_S = 0.002
_SLOW_STEP_S = 0.01
_SLOW_MAX = 1_000
_MANY_CHANGED = 50  # more than a user saves while git waits for an editor


@dataclass(frozen=True, slots=True)
class DirtyPaths:
    """Paths that may have changed.

    paths: relative to the root; files, or directories with everything in them, that may have
        changed, appeared or gone.
    everything: why the whole tree must be scanned instead ("overflow", "many", ...), else None.
    """

    paths: frozenset[str] = frozenset()
    everything: str | None = None

    def __bool__(self) -> bool:
        return bool(self.paths) or self.everything is not None

    def joined(self, other: DirtyPaths) -> DirtyPaths:
        """Return the union of both."""
        return DirtyPaths(self.paths | other.paths, self.everything or other.everything)


class EventKind(enum.Enum):
    """The kind of change that an event reports of its path."""

    WRITTEN = "written"  # and not closed yet
    CREATED = "created"  # a new file that is open yet
    DONE = "done"  # closed after it was written, or another was moved over it
    TOUCHED = "touched"  # only its attributes changed
    PLACED = "placed"  # complete at once
    TREE = "tree"  # a new directory: scan it with everything in it
    AGAIN = "again"  # a directory to scan once more
    GONE = "gone"
    LEFT = "left"  # moved over an existing file: do not wait for it to come back
    TREE_GONE = "tree gone"  # a directory with everything in it


_OPEN = (EventKind.WRITTEN, EventKind.CREATED)
_GONE = (EventKind.GONE, EventKind.TREE_GONE)


@dataclass(slots=True)
class _PathActivity:
    """The activity of this burst at a path. born: it didn't exist before."""

    state: EventKind
    since: float
    born: bool


class EventCoalescer:
    """Collects events until they are taken. Thread-safe.

    It also detects lost events by counting. The kernel drops events once a queue holds its maximum
    (16,384 unless someone lowered it), and all of the queued ones are read after the drop. So a
    drop is followed by many thousand events at a stretch, and a scan that begins after the last of
    them sees all changes that the dropped ones reported. Hence a stretch of MANY_EVENTS, including
    ignored paths (they fill the queue as well), asks for a scan. Events that trickle in don't add
    up: the count drains.
    """

    def __init__(self, *, closes: bool = True) -> None:
        self._closes = closes
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        #: those of `_paths` that stand for everything below them
        self._covers: set[str] = set()
        self._trees: set[str] = set()
        self._everything: str | None = None
        #: some of the paths noted since the last call of `many`
        self._recent: set[str] = set()
        self._level = 0.0
        self._level_at = 0.0
        #: of the burst that has not settled yet
        self._traces: dict[str, _PathActivity] = {}
        self._began = False
        self._first = self._last = 0.0
        self._burst = False
        #: files that are written without end: no longer waited for
        self._slow: set[str] = set()

    def count(self, now: float) -> bool:
        """Count an event, whatever its path.

        Returns True if a scan is needed now that was not needed before.
        """
        with self._lock:
            drained = (now - self._level_at) * _DRAIN_PER_S
            self._level = max(0.0, self._level - drained) + 1.0
            self._level_at = now
            if self._level < MANY_EVENTS:
                return False
            self._level = 0.0
            return self._all("many", now)

    def knows(self, path: str) -> bool:
        """Return True if this path is already among those to scan."""
        with self._lock:
            return path in self._paths

    def note(self, path: str, change: EventKind, now: float) -> bool:
        """Note a change. Returns True if it is the first since the last burst settled."""
        with self._lock:
            self._collect(path, change)
            fresh = not self._began
            if fresh:
                self._began, self._first, self._last = True, now, now
                self._burst = False
            self._trace(path, change, now)
            return fresh

    def all(self, reason: str, now: float) -> bool:
        """Ask for a full scan. Returns True if that is the first change since the last burst."""
        with self._lock:
            return self._all(reason, now)

    def trees(self) -> frozenset[str]:
        """Return the new directories that `take` would return."""
        with self._lock:
            return frozenset(self._trees)

    def many(self) -> bool:
        """Return True if many different paths have changed since the last call."""
        with self._lock:
            found, self._recent = len(self._recent) >= _MANY_CHANGED, set()
            return found

    @property
    def is_burst(self) -> bool:
        """True if there is more activity than a user's saves."""
        with self._lock:
            return self._burst

    def put_off(self, now: float) -> None:
        """Start the burst again: there is activity that events do not show."""
        with self._lock:
            self._began = self._burst = True
            self._first = self._last = now

    def rest_s(self, now: float) -> float:
        """Return how long to wait before the next call; 0 or less: the burst is over."""
        with self._lock:
            if not self._began:
                return 0.0
            if self._burst:
                return min(self._last + _BURST_QUIET_S, self._first + _BURST_LIMIT_S) - now
            if self._at_one_stroke():
                return 0.0
            quiet_s = _QUIET_S if self._closes else _QUIET_BLIND_S
            if self._traces and self._slow.issuperset(self._traces):
                return min(self._first + _SLOW_S - now, _SLOW_STEP_S)
            held = any(self._holds(path, trace, now) for path, trace in self._traces.items())
            end = min(self._last + quiet_s, self._first + _FEW_LIMIT_S)
            # A close comes in another thread and wakes nobody: ask again soon.
            return min(_STEP_S, self._first + _FEW_LIMIT_S - now) if held else end - now

    def settled(self) -> None:
        """End the burst, or the wait for it. Its paths still have to be taken."""
        with self._lock:
            for path, trace in self._traces.items():
                if trace.state in _OPEN and len(self._slow) < _SLOW_MAX:
                    self._slow.add(path)
            self._traces.clear()
            self._began = self._burst = False

    def take(self) -> tuple[DirtyPaths, frozenset[str]]:
        """Return what was gathered since the last call, and the new directories in it."""
        with self._lock:
            found = DirtyPaths(frozenset(self._paths), self._everything)
            if found.everything is not None:
                found = DirtyPaths(frozenset(), found.everything)
            trees = frozenset(self._trees)
            self._paths, self._covers, self._trees = set(), set(), set()
            self._everything = None
            self._traces.clear()
            self._began = self._burst = False
            return found, trees

    def _all(self, reason: str, now: float) -> bool:
        if self._everything is None:
            self._everything = reason
            self._paths.clear()
        fresh = not self._began
        if fresh:
            self._first = now
        self._began = self._burst = True
        self._last = now
        return fresh

    def _collect(self, path: str, change: EventKind) -> None:
        if len(self._recent) < _MANY_CHANGED:
            self._recent.add(path)
        if change is EventKind.TREE and len(self._trees) < MANY_PATHS:
            self._trees.add(path)
        if self._everything is not None:
            return
        if self._covers and self._within(path):
            return
        if change in (EventKind.TREE, EventKind.TREE_GONE, EventKind.AGAIN):
            self._covers.add(path)
        self._paths.add(path)
        if len(self._paths) > MANY_PATHS:
            self._everything = "many"
            self._paths.clear()

    def _within(self, path: str) -> bool:
        """Return True if a directory above it is scanned as a whole."""
        end = path.rfind("/")
        while end > 0:
            if path[:end] in self._covers:
                return True
            end = path.rfind("/", 0, end)
        return False

    def _trace(self, path: str, change: EventKind, now: float) -> None:
        if change in _OPEN and path in self._slow:
            self._traces.setdefault(path, _PathActivity(change, now, False))
            return  # neither waited for nor a sign of unrest
        self._last = now
        if change not in _OPEN and change is not EventKind.TOUCHED:
            self._slow.discard(path)
        if self._burst:
            return
        old = self._traces.get(path)
        if change is EventKind.LEFT:
            self._traces.pop(path, None)
        elif change in _GONE:
            if old is not None and old.born:
                del self._traces[path]  # came and went
            else:
                self._traces[path] = _PathActivity(EventKind.GONE, now, False)
        elif old is None or not self._goes_on(old.state, change):
            new = change in (EventKind.CREATED, EventKind.PLACED, EventKind.TREE)
            self._traces[path] = _PathActivity(change, now, new if old is None else old.born)
        if len(self._traces) > _BURST_PATHS:
            self._burst = True
            self._traces.clear()

    @staticmethod
    def _goes_on(state: EventKind, change: EventKind) -> bool:
        """Return True if the wait stays the same, since the same moment."""
        return change is EventKind.TOUCHED or (state in _OPEN and change in _OPEN)

    def _at_one_stroke(self) -> bool:
        """Return True if the burst is just one complete file that existed before.

        It was rewritten or replaced. A new file may be an editor's temporary one, about to be moved
        over the file that it saves.
        """
        if len(self._traces) != 1 or not self._closes:
            return False
        (trace,) = self._traces.values()
        return trace.state is EventKind.DONE and not trace.born

    def _holds(self, path: str, trace: _PathActivity, now: float) -> bool:
        """Return True if the next event of this path should be waited for."""
        if trace.state is EventKind.GONE:
            return now < trace.since + _GONE_S
        if trace.state in _OPEN:
            return self._closes and path not in self._slow and now < trace.since + _OPEN_S
        return False
