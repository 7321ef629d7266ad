"""Tables of the manifest's file, and their upgrade from earlier versions."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

_TABLES = (
    """
CREATE TABLE IF NOT EXISTS entry (
  path BLOB PRIMARY KEY, kind TEXT, mode INTEGER, size INTEGER, mtime_ns INTEGER,
  ctime_ns INTEGER, inode TEXT, digest TEXT, sent INTEGER, racy INTEGER, made INTEGER,
  proven INTEGER, stamp TEXT NOT NULL DEFAULT '', tried TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID
""",
    "CREATE TABLE IF NOT EXISTS unclean (path BLOB PRIMARY KEY) WITHOUT ROWID",
    # Earlier versions of tk leave these alone, so that they need no new number.
    "CREATE TABLE IF NOT EXISTS pulled (path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER)"
    " WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS pulled_new (path BLOB PRIMARY KEY) WITHOUT ROWID",
)
_VERSION = 3
#: Columns that versions 1 and 2 lack.
_UPGRADES = tuple(
    f"ALTER TABLE entry ADD COLUMN {name} TEXT NOT NULL DEFAULT ''" for name in ("stamp", "tried")
)
#: SQLite's errors of a file that is whole: a full or failing disk, a lock, no rights.
_PASSING = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}  # fmt: skip


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, new or not, for any thread; never for two at once. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, check_same_thread=False)


def prepare(db: sqlite3.Connection) -> None:
    """Make or upgrade the tables. Raises sqlite3.Error, also for a later version's file."""
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > _VERSION:
        raise sqlite3.DatabaseError("written by another version")
    for table in _TABLES:
        db.execute(table)
    for upgrade in _UPGRADES[version - 1 :] if version else ():
        db.execute(upgrade)
    db.execute(f"PRAGMA user_version={_VERSION}")
    db.commit()


def is_passing(error: sqlite3.Error) -> bool:
    """Return True for an error that says nothing about the file."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _PASSING
