"""The laptop's side of a pass: read what may have changed, learn the fate of what is absent."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror import plan
from tunnelkit.mirror.collisions import renamed_by_case
from tunnelkit.mirror.manifest import Row
from tunnelkit.mirror.progress import NAMED
from tunnelkit.mirror.scan import DECIDING, DIR, FILE, Entry, Scan, digest, lstat, racy

#: So much is read at once in the event loop: a way through a thread takes longer.
LITTLE_FILES, LITTLE_BYTES = 8, 128 << 10


@dataclass(slots=True)
class Outcome:
    """What one pass did. changing: paths that changed while they were read or sent.
    failed: paths that can't be read or written, and why. conflicts: paths that were changed
    on the cluster and are left alone."""

    sent: int = 0
    sent_bytes: int = 0
    deleted: int = 0
    kept: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    replaced_dir: str | None = None
    changing: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)
    #: the whole tree was looked at, which took so long
    scanned: bool = False
    scan_s: float = 0.0
    #: some of the files that were sent or deleted, for people
    names: list[str] = field(default_factory=list)

    def name(self, path: str) -> None:
        """Note a file that was sent or deleted."""
        if len(self.names) < NAMED:
            self.names.append(path)


@dataclass(slots=True)
class Work:
    """What a pass has to do, once the files were read. overruled: the person wants the
    laptop's of these, what is on the cluster is set aside."""

    sends: dict[str, Entry] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    refreshed: dict[str, tuple[Entry, bool]] = field(default_factory=dict)
    deletes: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    overruled: set[str] = field(default_factory=set)


def is_little(entries: Collection[Entry]) -> bool:
    """Whether these are a few small files."""
    return (
        len(entries) <= LITTLE_FILES
        and all(entry.kind == FILE for entry in entries)
        and sum(entry.size for entry in entries) <= LITTLE_BYTES
    )


def read(
    root: str,
    rows: Mapping[str, Row],
    scan: Scan,
    difference: plan.Difference,
    force: Collection[str],
    out: Outcome,
) -> Work:
    """Digests of what may have changed, and the fate of what is absent (blocking)."""
    work = Work()
    for path, entry in difference.changed.items():
        if path in scan.unreadable:
            continue  # a directory: its permissions there must not become these
        seen_ns = time.time_ns()
        try:
            text = "" if entry.kind == DIR else digest(root, path, entry.kind)
            now = lstat(root, path)
        except FileNotFoundError:
            now = None
        except OSError as error:
            out.failed[path] = f"can't be read: {error.strerror or error}"
            continue
        if now != entry:
            out.changing.add(path)
            continue
        if path not in force and plan.same_content(rows.get(path), entry, text):
            work.refreshed[path] = (entry, racy(entry, seen_ns))
        else:
            work.sends[path] = entry
            work.digests[path] = text
    work.deletes, work.forgotten = fates(root, difference.absent, scan)
    return work


def fates(root: str, absent: Collection[str], scan: Scan) -> tuple[set[str], set[str]]:
    """Of the paths that the scan lacks: those that were deleted, and those that are only
    ignored now (blocking). What can't be told is in neither."""
    deletes, forgotten = set(), set()
    for path in absent:
        gone = _gone(root, path, scan)
        if gone:
            deletes.add(path)
        elif gone is False:
            forgotten.add(path)
    return deletes, forgotten


def _gone(root: str, path: str, scan: Scan) -> bool | None:
    """Why the scan lacks a path: True, it was deleted; False, it is ignored now (what is
    on the cluster stays there); None, nobody can tell."""
    for above in plan.parents(path):
        if above in scan.entries and scan.entries[above].kind != DIR:
            return True  # lstat would follow the symlink that replaced its directory
        if above in scan.unreadable:
            return None
    try:
        os.lstat(os.path.join(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return None
    return renamed_by_case(root, path)  # found, but perhaps only by another spelling


def interesting(root: str, scan: Scan | None, path: str, *, is_dir: bool = False) -> bool:
    """Whether an event at this absolute path may matter, by the rules of the last scan."""
    relative = path[len(root.rstrip("/")) + 1 :]
    if scan is None or not relative or relative in scan.entries:
        return True
    base = ""
    *above, name = relative.split("/")
    for part in above:
        rules = scan.rules.get(base)
        if rules is None:
            return True  # a new directory
        if rules.ignored(base + part, part, True):
            return False
        base += part + "/"
    rules = scan.rules.get(base)
    if rules is None or name in DECIDING:
        return True
    return not rules.ignored(base + name, name, is_dir)
