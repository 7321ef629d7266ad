"""Differences between the manifest and a scan. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.mirror.tree.scanner import DIR, Entry


@dataclass(slots=True)
class Diff:
    """The manifest against a scan.

    changed: paths to read and, if their content differs, to send.
    absent: recorded paths that the scan lacks. The caller uses lstat to find out if they were
        deleted, ignored or are only unreadable.
    """

    changed: dict[str, Entry] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)


def compare(
    rows: Mapping[str, ManifestEntry],
    entries: dict[str, Entry],
    *,
    force: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Diff:
    """Return the entries that may differ from what was sent, by stat alone.

    entries: where they are equal, they are replaced by the manifest's own: after a restart, both
        were read, and a session keeps one of each path.
    only: all other paths are known to be settled. None: compare all.
    """
    difference = Diff()
    if only is None:
        seen: Iterable[tuple[str, Entry]] = entries.items()
        difference.absent = [path for path in rows if path not in entries]
    else:
        seen = [(path, entries[path]) for path in only if path in entries]
        difference.absent = [path for path in only if path in rows and path not in entries]
    for path, entry in seen:
        row = rows.get(path)
        if row is None or not row.sent or row.racy or row.entry != entry or path in force:
            difference.changed[path] = entry
        elif row.entry is not entry:
            entries[path] = row.entry
    return difference


def split(difference: Diff, paths: Collection[str]) -> tuple[Diff, Diff]:
    """Split a diff into the rest and the part of these paths (second).

    The second part includes the absent paths below them, which must be deleted before they are
    sent.
    """
    rest, apart = Diff(), Diff()
    for path, entry in difference.changed.items():
        (apart if path in paths else rest).changed[path] = entry
    for path in difference.absent:
        in_the_way = any(above in paths for above in parents(path))
        (apart if in_the_way else rest).absent.append(path)
    return rest, apart


def move_parents(rest: Diff, apart: Diff) -> None:
    """Move the changed directories above the changed paths of `apart` into it.

    It is sent before the rest, and would make them unrecorded.
    """
    for path in list(apart.changed):
        for above in parents(path):
            if above in rest.changed:
                apart.changed[above] = rest.changed.pop(above)


def split_doubted(
    difference: Diff,
    rows: Mapping[str, ManifestEntry],
    looked: Collection[str] | None,
    force: Collection[str],
) -> Diff:
    """Take out, and return, what must be read again only because its time stamps are not reliable.

    It can wait until the known changes were sent.
    looked: paths that may have changed. None: all may have.
    """
    doubted = Diff()
    if looked is None or not difference.changed.keys() & looked:
        return doubted
    for path in difference.changed.keys() - looked:
        row = rows.get(path)
        sent = row is not None and row.sent and row.entry == difference.changed[path]
        if sent and path not in force:
            doubted.changed[path] = difference.changed.pop(path)
    return doubted


def swaps(
    deletes: Collection[str], sends: Mapping[str, Entry], rows: Mapping[str, ManifestEntry]
) -> set[str]:
    """Return what must be deleted before anything is sent.

    That is a file where a directory comes, or the reverse. All else is deleted after the sending,
    so that a renamed file is never missing.
    """
    turned = {
        path
        for path, entry in sends.items()
        if path in rows and (rows[path].entry.kind == DIR) != (entry.kind == DIR)
    }
    return turned | {path for path in deletes if any(above in turned for above in parents(path))}
