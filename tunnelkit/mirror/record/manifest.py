"""Manifest: the paths that tk has sent, the only ones that it may delete or overwrite silently.

Kept in memory and in one SQLite file on the laptop, so that the session after a killed one knows
which files are tk's. What is about to be sent is recorded first (`sent` False, in the notes of
intent_log.py or as a row), and its row is completed afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.record import intent_log, tables
from tunnelkit.mirror.record.pulled_files import PulledFiles
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry, compact

_NS = 1_000_000_000
_MANY = 100
_ALL = (
    "SELECT path, kind, mode, size, mtime_ns, ctime_ns, inode, digest,"
    " sent, racy, made, proven, stamp, tried FROM entry"
)


class ManifestEntry(NamedTuple):
    """One path that tk sent or began to send.

    entry: lstat at that time.
    digest: sha256 hex, "" for directories.
    sent: the transfer was completed.
    racy: may have changed without a trace in its time stamps.
    made: a directory that did not exist before.
    proven: the compute node has read the digest back.
    stamp: the agent's stat of the remote file (opaque here), "" if no agent reported one.
    tried: other digests that were sent without an answer, separated by spaces. The file there may
        have any of them.
    """

    entry: Entry
    digest: str = ""
    sent: bool = False
    racy: bool = False
    made: bool = False
    proven: bool = False
    stamp: str = ""
    tried: str = ""


def same_time(row: ManifestEntry, stamp: str) -> bool:
    """Return True if a stamp has the mtime that was sent; make on the cluster goes by that.

    stamp: its first part is the mtime. Compared in whole seconds: some file systems keep no more.
    """
    mtime_ns = int(stamp.partition(":")[0])
    return row.entry.kind != FILE or mtime_ns // _NS == row.entry.mtime_ns // _NS


def same_content(row: ManifestEntry | None, entry: Entry, digest: str) -> bool:
    """Return True if what was sent equals `entry` in all that the cluster can see."""
    if row is None or not row.sent:
        return False
    sent = row.entry
    if (sent.kind, sent.mode, digest) != (entry.kind, entry.mode, row.digest):
        return False
    # A changed mtime is sent too: make and Python's caches on the cluster go by it.
    return entry.kind == DIR or sent.mtime_ns == entry.mtime_ns


class Manifest:
    """The rows by path. `open` before use, `close` after.

    The methods may be called from any thread. `rows` itself is for the one running pass.

    A thread may still be in one of the methods when `close` is called: a cancelled `to_thread`
    leaves its thread running. So every use of the connection holds the lock. Closing it under
    another thread's statement crashes the interpreter (CPython 3.11) or, in `open`, makes a healthy
    file look damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, ManifestEntry] = {}
        #: paths that stat alone can't settle: not (wholly) sent, or racy
        self.unsettled: set[str] = set()
        #: directories in which a broken transfer may have left staged files of paths that are no
        #: longer on record
        self.unclean: set[str] = set()
        self._unproven: set[str] = set()
        self._files = self._bytes = 0
        self._db: sqlite3.Connection | None = None
        self._intents = intent_log.IntentLog(path.with_suffix(".intents"))
        self._closed = False
        self._lock = threading.RLock()
        self.pulled = PulledFiles(self._lock, self._connection)

    @staticmethod
    def file_for(state_dir: Path, *, local_root: str, host: str, remote_root: str) -> Path:
        """Return the path of the manifest for this pair of directories."""
        identity = "\0".join((local_root, host, remote_root))
        name = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        return state_dir / f"mirror-{name}.sqlite"

    @staticmethod
    def any_in(state_dir: Path) -> bool:
        """Return True if the directory has any manifest: something was once sent (blocking)."""
        return any(state_dir.glob("mirror-*.sqlite"))

    def open(self, scanned: Mapping[str, Entry] | None = None) -> None:
        """Read the rows.

        scanned: what is here now. A row holds its path and, if it is equal, its entry: a session
            keeps one of each, not two.
        A damaged file is set aside. Then no remote file counts as tk's, which is safe. Raises
        MirrorError if the directory can't be used, and after `close`.
        """
        with self._lock:
            if self._closed:
                raise _stopped()
            try:
                self._open(scanned or {})
            except (OSError, sqlite3.Error) as error:
                raise MirrorError(
                    f"the mirror's record {self.path} can't be opened",
                    cause=str(error),
                    hint="check the disk and the directory's permissions",
                ) from error

    def _open(self, scanned: Mapping[str, Entry]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._load(scanned)
        except sqlite3.DatabaseError as error:
            self._disconnect()
            if tables.is_passing(error):
                raise  # the file is whole: without its rows edits there would be no conflicts
            os.replace(self.path, self.path.with_suffix(".damaged"))
            intents = self.path.with_suffix(".intents")
            for beside in (f"{self.path}-wal", f"{self.path}-shm", intents):
                Path(beside).unlink(missing_ok=True)
            self._load(scanned)

    def _load(self, scanned: Mapping[str, Entry]) -> None:
        self._db = db = tables.connect(self.path)
        tables.prepare(db)
        # Read everything before using any of it: a damaged file may show that only half-way.
        rows, own = {}, {path: path for path in scanned}
        for name, *values in db.execute(_ALL):
            path = os.fsdecode(name)
            rows[own.get(path, path)] = _row(scanned.get(path), *values)
        unclean = db.execute("SELECT path FROM unclean").fetchall()
        self.pulled.load(db)
        self.unclean = {os.fsdecode(name) for (name,) in unclean}
        for path, row in rows.items():
            self._set(path, row)
        self.put(self._intents.open(lambda entry, *rest: ManifestEntry(Entry(*entry), *rest)))

    def _set(self, path: str, row: ManifestEntry | None) -> None:
        """Put one row (None: forget it) in memory, and update the counts."""
        old = self.rows.get(path)
        for one, sign in ((old, -1), (row, 1)):
            if one is not None and one.sent and one.entry.kind != DIR:
                self._files += sign
                self._bytes += sign * one.entry.size
        self._mark(self.unsettled, path, row is not None and (row.racy or not row.sent))
        unproven = row is not None and row.sent and not row.proven and row.entry.kind == FILE
        # A job may change or remove its own file.
        self._mark(self._unproven, path, unproven and path not in self.pulled)
        if row is None:
            self.rows.pop(path, None)
        else:
            self.rows[path] = row

    @staticmethod
    def _mark(marked: set[str], path: str, is_so: bool) -> None:
        if is_so:
            marked.add(path)
        else:
            marked.discard(path)

    def intend(self, rows: Mapping[str, ManifestEntry]) -> None:
        """Record what is about to be sent. As durable as `put`, and quicker."""
        with self._lock:
            if rows:
                self._connection()
                self._intents.add(rows)
                for path, row in rows.items():
                    self._set(path, row)

    def put(self, rows: Mapping[str, ManifestEntry]) -> None:
        """Add or replace rows, durably."""
        with self._lock:
            if not rows:
                return
            db = self._connection()
            with db:
                new = self._complete(db, rows) if len(rows) > _MANY else rows
                db.executemany(
                    "INSERT OR REPLACE INTO entry VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    (
                        # inode as text: some file systems use all 64 bits, SQLite's are signed
                        (os.fsencode(path), *row.entry[:5], str(row.entry.inode), *row[1:])
                        for path, row in new.items()
                    ),
                )
            for path, row in rows.items():
                self._set(path, row)
            self._shrink(len(rows))
            self._intents.settled(rows)

    def _complete(
        self, db: sqlite3.Connection, rows: Mapping[str, ManifestEntry]
    ) -> Mapping[str, ManifestEntry]:
        """Mark all unsent rows as sent with one statement, if just those were sent now.

        Returns the rows that are left to put.
        """
        done = {
            path
            for path, row in rows.items()
            if row.sent and self.rows.get(path) == row._replace(sent=False)
        }
        unsent = db.execute("SELECT COUNT(*) FROM entry WHERE sent=0").fetchone()[0]
        if unsent != len(done) or self._intents.any_of(done):
            return rows
        db.execute("UPDATE entry SET sent=1 WHERE sent=0")
        return {path: row for path, row in rows.items() if path not in done}

    def _shrink(self, count: int) -> None:
        """Rebuild big sets: they never shrink, and each save walks `unsettled`."""
        if count > _MANY or not self.unsettled:
            self.unsettled = set(self.unsettled)
        if count > _MANY or not self._unproven:
            self._unproven = set(self._unproven)

    def refresh(self, seen: Mapping[str, tuple[Entry, bool]]) -> None:
        """Record the new stat (and `racy`) of paths whose content is as sent.

        All else of the rows, such as proofs, stays as it is at this moment.
        """
        with self._lock:
            self.put(
                {
                    path: self.rows[path]._replace(entry=entry, racy=is_racy)
                    for path, (entry, is_racy) in seen.items()
                    if path in self.rows
                }
            )

    def drop(self, paths: Iterable[str]) -> None:
        """Forget rows, durably."""
        with self._lock:
            gone = [path for path in paths if path in self.rows]
            if not gone:
                return
            dirs = {os.path.dirname(path) for path in gone if not self.rows[path].sent}
            unclean = dirs - {""}  # the root is cleaned in any case
            db = self._connection()
            with db:
                db.executemany("DELETE FROM entry WHERE path=?", _named(gone))
                db.executemany("INSERT OR IGNORE INTO unclean VALUES (?)", _named(unclean))
            self.unclean |= unclean
            for path in gone:
                self._set(path, None)
            self._shrink(len(gone))
            self._intents.settled(gone)

    def cleaned(self, paths: Iterable[str]) -> None:
        """Note that nothing staged is left in these directories."""
        with self._lock:
            known = self.unclean.intersection(paths)
            if known:
                db = self._connection()
                with db:
                    db.executemany("DELETE FROM unclean WHERE path=?", _named(known))
                self.unclean -= known

    def mark_pulled(self, paths: Iterable[str]) -> None:
        """Record, durably, that the files there are not tk's, but for those that tk has sent."""
        with self._lock:
            rows = self.rows
            self.pulled.add(path for path in paths if path not in rows or not rows[path].sent)

    def tried(self) -> dict[str, Collection[str]]:
        """Return by path the possible digests of what a killed session sent without an answer."""
        with self._lock:
            return {
                path: {self.rows[path].digest, *self.rows[path].tried.split()} - {""}
                for path in self.unsettled
                if self.rows[path].tried
            }

    def is_unfinished(self) -> bool:
        """Return True if sending was begun and not ended: by a session that was killed."""
        with self._lock:
            return any(not self.rows[path].sent for path in self.unsettled)

    def unproven(self) -> dict[str, str]:
        """Return {path: sha256 hex} of the files that no compute node has read back yet."""
        with self._lock:
            return {path: self.rows[path].digest for path in self._unproven}

    def prove(self, digests: Mapping[str, str], stamps: Mapping[str, str] | None = None) -> int:
        """Record that these digests were read back, with their stamps; return the number of files.

        A file that was sent again meanwhile stays unproven.
        """
        return self._note(digests, stamps or {}, proven=True)

    def stamp(self, digests: Mapping[str, str], stamps: Mapping[str, str]) -> None:
        """Record stamps for these digests from an unverified source: proves nothing."""
        self._note(digests, stamps, proven=False)

    def _note(self, digests: Mapping[str, str], stamps: Mapping[str, str], *, proven: bool) -> int:
        with self._lock:
            count, noted = 0, {}
            for path, text in digests.items():
                row = self.rows.get(path)
                if row is None or not row.sent or row.digest != text:
                    continue
                count += 1
                is_proven, stamp = proven or row.proven, stamps.get(path, row.stamp)
                if (is_proven, stamp) != (row.proven, row.stamp):
                    noted[path] = ManifestEntry(
                        row.entry, text, True, row.racy, row.made, is_proven, stamp
                    )
            self._put_proofs(noted)
            return count

    def _put_proofs(self, rows: Mapping[str, ManifestEntry]) -> None:
        """Write rows of which only the proof and the stamp are new."""
        if not rows:
            return
        db = self._connection()
        with db:
            db.executemany(
                "UPDATE entry SET proven=?, stamp=? WHERE path=?",
                [(row.proven, row.stamp, os.fsencode(path)) for path, row in rows.items()],
            )
        for path, row in rows.items():
            self._set(path, row)
        self._shrink(len(rows))

    def forget_proofs(self) -> None:
        """Have every file proven again, by another compute node."""
        with self._lock:
            self.put(
                {path: row._replace(proven=False) for path, row in self.rows.items() if row.proven}
            )

    def totals(self) -> tuple[int, int]:
        """Return the number of files and symlinks on the cluster, and their size in bytes."""
        with self._lock:
            return self._files, self._bytes

    def close(self) -> None:
        """Close for good. Waits for a thread that uses it; later calls raise MirrorError."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None
        self._intents.close()

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise _stopped()
        return self._db


def _row(
    now: Entry | None, kind: str, mode: int, size: int, mtime_ns: int, ctime_ns: int, inode: str,
    text: str, sent: int, racy: int, made: int, proven: int, stamp: str, tried: str,
) -> ManifestEntry:  # fmt: skip
    """Return the row of these columns, which are all but the path; with `now` if that is equal."""
    entry = compact(kind, mode, size, mtime_ns, ctime_ns, int(inode))
    entry = now if now is not None and now == entry else entry
    flags = bool(sent), bool(racy), bool(made), bool(proven)
    return ManifestEntry(entry, text, *flags, stamp, tried)


def _named(paths: Iterable[str]) -> list[tuple[bytes]]:
    """Return a row for SQLite for each path."""
    return [(os.fsencode(path),) for path in paths]


def _stopped() -> MirrorError:
    return MirrorError("the mirror was stopped", hint="tk up")
