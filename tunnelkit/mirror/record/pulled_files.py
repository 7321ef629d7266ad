"""Paths whose file on the cluster is not tk's: it was pulled from there, or edited there.

tk deletes and replaces such a file no more than any other of the job's, even after the mirror has
found it equal to the laptop's. That ends once tk itself has written it. On record also: the size
and time of each file that a pull has put on the laptop, so that an edit shows whatever the clocks
say. And which of them were so new that the job may have written them again at the same time.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

#: Size and mtime_ns of a file on the laptop.
Placed = tuple[int, int]


class PulledFiles:
    """A collection of relative paths, durable in the manifest's file. Usable from any thread."""

    def __init__(self, lock: threading.RLock, connection: Callable[[], sqlite3.Connection]) -> None:
        self._lock = lock
        self._connection = connection
        self._placed: dict[str, Placed | None] = {}
        self._new: set[str] = set()

    def __contains__(self, path: object) -> bool:
        return path in self._placed

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._placed))

    def __len__(self) -> int:
        return len(self._placed)

    def load(self, db: sqlite3.Connection) -> None:
        """Read all of it."""
        found = db.execute("SELECT path, size, mtime_ns FROM pulled").fetchall()
        self._placed = {
            os.fsdecode(name): None if size is None else (size, mtime_ns)
            for name, size, mtime_ns in found
        }
        new = db.execute("SELECT path FROM pulled_new").fetchall()
        self._new = {os.fsdecode(name) for (name,) in new}

    def add(self, paths: Iterable[str]) -> None:
        """Record that the files there are not tk's."""
        with self._lock:
            self._put(dict.fromkeys(path for path in paths if path not in self._placed))

    def note(self, placed: Mapping[str, Placed], *, new_since_ns: int) -> None:
        """Record what a pull has put on the laptop; paths that are not in here are left out.

        new_since_ns: those with this mtime or a later one are `unsettled`."""
        with self._lock:
            known = {path: one for path, one in placed.items() if path in self._placed}
            new = {path for path, (_, mtime_ns) in known.items() if mtime_ns >= new_since_ns}
            with self._connection() as db:
                names = [(os.fsencode(path),) for path in new]
                db.executemany("INSERT OR IGNORE INTO pulled_new VALUES (?)", names)
            self._new |= new
            self._put(known)
            self.settle(known.keys() - new)

    def unsettled(self, paths: Iterable[str]) -> dict[str, Placed]:
        """Return `placed` of those paths whose files may be others by now, with the same time."""
        with self._lock:
            return self.placed(path for path in paths if path in self._new)

    def settle(self, paths: Iterable[str]) -> None:
        """Record that their size and time show every change from now on."""
        with self._lock:
            old = self._new.intersection(paths)
            if old:
                with self._connection() as db:
                    names = [(os.fsencode(path),) for path in old]
                    db.executemany("DELETE FROM pulled_new WHERE path=?", names)
                self._new -= old

    def _put(self, new: Mapping[str, Placed | None]) -> None:
        if not new:
            return
        with self._connection() as db:
            db.executemany(
                "INSERT OR REPLACE INTO pulled VALUES (?,?,?)",
                [(os.fsencode(path), *(one or (None, None))) for path, one in new.items()],
            )
        self._placed.update(new)

    def placed(self, paths: Iterable[str]) -> dict[str, Placed]:
        """Return what the last pull of each path has put on the laptop, if any has."""
        with self._lock:
            return {path: one for path in paths if (one := self._placed.get(path)) is not None}

    def discard(self, paths: Iterable[str]) -> None:
        """Record that tk itself has written these files there."""
        with self._lock:
            gone = [path for path in paths if path in self._placed]
            self.settle(gone)
            if gone:
                with self._connection() as db:
                    names = [(os.fsencode(path),) for path in gone]
                    db.executemany("DELETE FROM pulled WHERE path=?", names)
                for path in gone:
                    del self._placed[path]
