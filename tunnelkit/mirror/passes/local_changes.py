"""The laptop's side of a pass: hash changed files and classify missing paths."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import ManifestEntry, same_content
from tunnelkit.mirror.tree.name_collisions import renamed_by_case
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.mirror.tree.scanner import (
    DECIDING,
    DIR,
    FILE,
    LINK,
    Entry,
    Scan,
    digest,
    lstat,
    racy,
)

#: Up to this much is read directly in the event loop: a thread would take longer.
LITTLE_FILES, LITTLE_BYTES = 8, 128 << 10


@dataclass(slots=True)
class PassPlan:
    """The work of a pass, once the files were read.

    overruled: paths where the user chose the laptop's version. The cluster's version is set aside.
    same: paths whose remote file is the job's, and has the laptop's content: nothing is sent.
    changing, failed: as in `PassResult`.
    """

    sends: dict[str, Entry] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    refreshed: dict[str, tuple[Entry, bool]] = field(default_factory=dict)
    deletes: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    overruled: set[str] = field(default_factory=set)
    same: set[str] = field(default_factory=set)
    changing: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)


def is_little(entries: Collection[Entry]) -> bool:
    """Return True if these are a few small files."""
    return (
        len(entries) <= LITTLE_FILES
        and all(entry.kind == FILE for entry in entries)
        and sum(entry.size for entry in entries) <= LITTLE_BYTES
    )


def are_few_known(scan: Scan, paths: Collection[str]) -> bool:
    """Return True if these are a few files that the scan has, and none that has rules."""
    return len(paths) <= LITTLE_FILES and all(
        (entry := scan.entries.get(path)) is not None
        and entry.kind == FILE
        and path.rpartition("/")[2] not in DECIDING
        for path in paths
    )


def hash_changed(
    root: str,
    rows: Mapping[str, ManifestEntry],
    scan: Scan,
    difference: diff.Diff,
    force: Collection[str],
) -> PassPlan:
    """Hash the changed files, and classify the missing paths (blocking)."""
    work = PassPlan()
    for path, entry in difference.changed.items():
        if path in scan.unreadable:
            continue  # a directory: must not get these permissions on the cluster
        seen_ns = time.time_ns()
        try:
            text = "" if entry.kind == DIR else digest(root, path, entry.kind)
            now = lstat(root, path)
        except FileNotFoundError:
            now = None
        except OSError as error:
            work.failed[path] = f"can't be read: {error.strerror or error}"
            continue
        if now != entry:
            work.changing.add(path)
            continue
        if path not in force and same_content(rows.get(path), entry, text):
            work.refreshed[path] = (entry, racy(entry, seen_ns))
        else:
            work.sends[path] = entry
            work.digests[path] = text
    work.deletes, work.forgotten, back = classify_missing(root, difference.absent, scan)
    work.changing |= back
    return work


class MissingPaths(NamedTuple):
    """Paths that a scan lacks.

    ignored: they stay on the cluster as they are. back: they exist again, as an editor may save by
    creating them; or their directory went during the scan, and the next one has all of it.
    """

    deleted: set[str]
    ignored: set[str]
    back: set[str]


def classify_missing(root: str, absent: Collection[str], scan: Scan) -> MissingPaths:
    """Classify the paths that the scan lacks (blocking). Leave out those of unknown state."""
    found = MissingPaths(set(), set(), set())
    for path in absent:
        kind = _kind(found, root, path, scan)
        if kind is not None:
            kind.add(path)
    return found


def spare(deletes: set[str], forgotten: set[str], theirs: Collection[str]) -> None:
    """Forget, instead of deleting them, the paths whose remote file is not tk's."""
    left = {path for path in deletes if path in theirs}
    deletes -= left
    forgotten |= left


def _kind(found: MissingPaths, root: str, path: str, scan: Scan) -> set[str] | None:
    """Return the set to which a path belongs; None if its state is unknown."""
    for above in parents(path):
        if above in scan.entries and scan.entries[above].kind != DIR:
            return found.deleted  # lstat would follow the symlink that replaced its directory
        if above in scan.unreadable:
            return None
        if LINK not in scan.kinds and os.path.islink(os.path.join(root, above)):
            return found.ignored  # the same, of symlinks that are no part of the mirror
    try:
        info = os.lstat(os.path.join(root, path))
    except (FileNotFoundError, NotADirectoryError):
        # A part of what is gone could be too little to ask before it is deleted there.
        return found.back if _went_during(root, path, scan) else found.deleted
    except OSError:
        return None
    if renamed_by_case(root, path):
        return found.deleted  # lstat finds it only under another spelling
    entry = Entry.of(info)
    if entry is None or entry.kind not in scan.kinds or _left_out(scan, path, entry.kind == DIR):
        return found.ignored
    return found.back


def _went_during(root: str, path: str, scan: Scan) -> bool:
    """Return True if the directory of a missing path is gone, but the scan has it."""
    above = path.rpartition("/")[0]
    return above in scan.entries and not os.path.lexists(os.path.join(root, above))


def interesting(root: str, scan: Scan | None, path: str, *, is_dir: bool = False) -> bool:
    """Return True if an event at this absolute path may matter, by the last scan's rules."""
    relative = path[len(root.rstrip("/")) + 1 :]
    if scan is None or not relative or relative in scan.entries:
        return True
    above, _, name = relative.rpartition("/")
    if name in DECIDING:
        return not above or not _ruled_out(scan, above, True)
    return not _ruled_out(scan, relative, is_dir)


def _left_out(scan: Scan, path: str, is_dir: bool) -> bool:
    """Return True if the rules of that scan exclude an existing relative path."""
    inner = scan.rules.get(path + "/")
    is_venv = inner is not None and inner.closed is not None
    return is_venv or _ruled_out(scan, path, is_dir)


def _ruled_out(scan: Scan, path: str, is_dir: bool) -> bool:
    """Return True if the rules of that scan ignore a path or a directory above it.

    False for a path in a directory that the scan did not find.
    """
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
