"""Halt a pass that would delete so many files that the user must confirm it.

An unmounted directory, a wrong `cd` before `rm` and a checkout of another project all look like
deletes. A renamed file is no delete: the same pass sends its content again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tunnelkit.errors import MirrorHalted
from tunnelkit.mirror.api import DELETE_LIMIT_FILES, name_paths
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import DIR, Entry, digest

#: Deleting more than this part of all files halts the mirror, too, but only above FEW_FILES. In a
#: small project a checkout of a branch may delete that many, and they are sent again at once.
DELETE_LIMIT_PART = 0.5
FEW_FILES = 100

_SHOWN_PATHS = 10
_HINT = "bring the files back and it goes on by itself, or agree: tk sync --confirm-deletes"


def check_deletes(
    rows: Mapping[str, ManifestEntry],
    deletes: Collection[str],
    entries: Mapping[str, Entry],
    *,
    sent_digests: Iterable[str] = (),
    limit_files: int = DELETE_LIMIT_FILES,
) -> None:
    """Raise MirrorHalted if the tree was emptied or too many files vanished at once.

    deletes: the paths to delete on the cluster.
    entries: what the laptop has now.
    sent_digests: digests of the new files that the same pass sends. If one equals the digest of a
        missing file, the file was moved.
    """
    gone = sorted(path for path in deletes if rows[path].entry.kind != DIR)
    if not gone:
        return
    # Counts rows that never arrived, too: an interrupted push may have written them.
    total = sum(row.entry.kind != DIR for row in rows.values())
    if not any(entry.kind != DIR for entry in entries.values()):
        raise MirrorHalted(
            "the mirrored directory is empty",
            cause=f"{total} files were in it; nothing was deleted on the cluster",
            hint=_HINT,
        )
    gone = _not_moved(rows, gone, sent_digests)
    if len(gone) > limit_files or len(gone) > max(FEW_FILES, DELETE_LIMIT_PART * total):
        raise MirrorHalted(
            f"{len(gone)} of {total} mirrored files are gone from the laptop",
            cause=f"nothing was deleted on the cluster: {name_paths(gone, limit=_SHOWN_PATHS)}",
            hint=_HINT,
        )


def may_halt(count: int, limit_files: int) -> bool:
    """Return True if a pass may be halted for so many missing paths."""
    return count > min(FEW_FILES, limit_files)


def may_be_moved(
    root: str,
    rows: Mapping[str, ManifestEntry],
    changed: Mapping[str, Entry],
    gone: Iterable[str],
) -> dict[str, str]:
    """Return the digests of new files that missing ones may have become (blocking).

    Reads only files of the size of a missing one.
    """
    sizes, found = {rows[path].entry.size for path in gone}, {}
    for path, entry in changed.items():
        row = rows.get(path)
        if entry.kind == DIR or entry.size not in sizes or (row is not None and row.sent):
            continue
        try:
            text = digest(root, path, entry.kind)
        except OSError:
            continue  # it can't be sent either
        if is_new(row, text):
            found[path] = text
    return found


def is_new(row: ManifestEntry | None, digest: str) -> bool:
    """Return True if a path with this content is new, so that a missing file may have moved there.

    It stays so while an attempt to send just this has no answer."""
    return row is None or (not row.sent and row.digest == digest)


def _not_moved(
    rows: Mapping[str, ManifestEntry], gone: Iterable[str], sent_digests: Iterable[str]
) -> list[str]:
    found, left = Counter(sent_digests), []
    for path in gone:
        digest = rows[path].digest
        if found[digest] > 0:
            found[digest] -= 1
        else:
            left.append(path)
    return left
