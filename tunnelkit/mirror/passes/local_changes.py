"""The laptop's side of a pass: read what may have changed, learn the fate of what is absent."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror.context import PassResult
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import ManifestEntry, same_content
from tunnelkit.mirror.tree.name_collisions import renamed_by_case
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.mirror.tree.scanner import DECIDING, DIR, FILE, Entry, Scan, digest, lstat, racy

#: So much is read at once in the event loop: a way through a thread takes longer.
LITTLE_FILES, LITTLE_BYTES = 8, 128 << 10


@dataclass(slots=True)
class PassPlan:
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


def hash_changed(
    root: str,
    rows: Mapping[str, ManifestEntry],
    scan: Scan,
    difference: diff.Diff,
    force: Collection[str],
    out: PassResult,
) -> PassPlan:
    """Digests of what may have changed, and the fate of what is absent (blocking)."""
    work = PassPlan()
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
        if path not in force and same_content(rows.get(path), entry, text):
            work.refreshed[path] = (entry, racy(entry, seen_ns))
        else:
            work.sends[path] = entry
            work.digests[path] = text
    work.deletes, work.forgotten = classify_missing(root, difference.absent, scan, out)
    return work


def classify_missing(
    root: str, absent: Collection[str], scan: Scan, out: PassResult
) -> tuple[set[str], set[str]]:
    """Of the paths that the scan lacks: those that were deleted, and those that are only
    ignored now (blocking). What can't be told is in neither; what has come back since, as a file
    does that is saved anew under its name, is `changing`."""
    fate: dict[_Fate, set[str]] = {one: set() for one in _Fate}
    for path in absent:
        fate[_fate(root, path, scan)].add(path)
    out.changing |= fate[_Fate.BACK]
    return fate[_Fate.DELETED], fate[_Fate.IGNORED]


class _Fate(enum.Enum):
    """Why a scan lacks a path. What is ignored now stays on the cluster as it is."""

    DELETED = enum.auto()
    IGNORED = enum.auto()
    BACK = enum.auto()
    UNKNOWN = enum.auto()


def _fate(root: str, path: str, scan: Scan) -> _Fate:
    for above in parents(path):
        if above in scan.entries and scan.entries[above].kind != DIR:
            return _Fate.DELETED  # lstat would follow the symlink that replaced its directory
        if above in scan.unreadable:
            return _Fate.UNKNOWN
    try:
        info = os.lstat(os.path.join(root, path))
    except (FileNotFoundError, NotADirectoryError):
        return _Fate.DELETED
    except OSError:
        return _Fate.UNKNOWN
    if renamed_by_case(root, path):
        return _Fate.DELETED  # found only by another spelling
    entry = Entry.of(info)
    if entry is None or entry.kind not in scan.kinds or _left_out(scan, path, entry.kind == DIR):
        return _Fate.IGNORED
    return _Fate.BACK


def interesting(root: str, scan: Scan | None, path: str, *, is_dir: bool = False) -> bool:
    """Whether an event at this absolute path may matter, by the rules of the last scan."""
    relative = path[len(root.rstrip("/")) + 1 :]
    if scan is None or not relative or relative in scan.entries:
        return True
    above, _, name = relative.rpartition("/")
    if name in DECIDING:
        return not above or not _ruled_out(scan, above, True)
    return not _ruled_out(scan, relative, is_dir)


def _left_out(scan: Scan, path: str, is_dir: bool) -> bool:
    """Whether a relative path that is here is none of what is mirrored, as of that scan."""
    inner = scan.rules.get(path + "/")
    is_venv = inner is not None and inner.closed is not None
    return is_venv or _ruled_out(scan, path, is_dir)


def _ruled_out(scan: Scan, path: str, is_dir: bool) -> bool:
    """Whether the rules of that scan leave out a path, or what is above it. In a directory that
    was not there: no."""
    base = ""
    *above, name = path.split("/")
    for part in above:
        rules = scan.rules.get(base)
        if rules is None:
            return False
        if rules.ignored(base + part, part, True):
            return True
        base += part + "/"
    rules = scan.rules.get(base)
    return rules is not None and rules.ignored(path, name, is_dir)
