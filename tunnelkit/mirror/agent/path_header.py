"""Headers of the paths that are sent, and the state that the agent must find at each."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror.record.manifest import ManifestEntry, same_content
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.mirror.tree.scanner import FILE, Entry, Scan, kept_mode

#: At most this much of a file in one parcel.
PIECE_BYTES = 512 << 10
_NS = 1_000_000_000
# The file may have become a symlink or a fifo since the scan.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Slice:
    """Some paths of a batch.

    sends: (entry, digest, racy) of the paths in `data`, as they were read.
    refreshed: (entry, racy) of paths whose content is on the cluster already.
    changing: paths that changed while they were read. failed: paths that can't be read, and why.
    dropped: paths of earlier slices that changed while they were read, or can't be read to the end.
    goes_on: True if the next slice has more of the same file.
    last: True if no slice follows.
    """

    data: bytes = b""
    sends: dict[str, tuple[Entry, str, bool]] = field(default_factory=dict)
    refreshed: dict[str, tuple[Entry, bool]] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    size_bytes: int = 0
    goes_on: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """The expected remote state.

    rows: what was sent.
    tried: digests that were sent without an answer.
    forced: send these whatever is recorded.
    ours: the laptop's version wins in any case.
    pulled: came from the cluster, where a job may go on writing them. What a row says was sent is
        the job's own content there.
    """

    rows: Mapping[str, ManifestEntry]
    tried: Mapping[str, Collection[str]]
    forced: Collection[str] = ()
    ours: Collection[str] = ()
    pulled: Collection[str] = ()


def announced(
    path: str,
    entry: Entry,
    text: str,
    known: ExpectedState,
    piece: Slice,
    ways: ParentDirs,
    *,
    is_racy: bool,
) -> dict[str, object] | None:
    """Note a file or symlink in `piece`. Return its header, or None if the cluster has it already.

    text: the digest of its content.
    """
    row = known.rows.get(path)
    if path not in known.forced and same_content(row, entry, text):
        piece.refreshed[path] = (entry, is_racy)
        return None
    piece.sends[path] = (entry, text, is_racy)
    header: dict[str, object] = {
        "path": path,
        "mtime_ns": entry.mtime_ns,
        "sha256": text,
        "expect": expectation(path, known),
        "unlike": _unlike(path, row, known),
    }
    above = ways.above(path)
    if above:
        header["above"] = above
    if entry.kind == FILE:
        header.update(mode=entry.mode, size=entry.size)
    return header


def is_there(path: str, text: str, known: ExpectedState) -> bool:
    """Return True if the cluster has this content, and only mode or time must be set."""
    row = known.rows.get(path)
    if row is None or path in known.forced or path in known.pulled:
        return False
    return row.sent and row.entry.kind == FILE and row.digest == text


def is_as_scanned(fd: int, entry: Entry) -> bool:
    """Return True if the open file is still what the scan found.

    Ask after reading. If the path names another file by now, an event says so.
    """
    info = os.fstat(fd)
    return (
        info.st_ino == entry.inode
        and info.st_ctime_ns == entry.ctime_ns
        and info.st_mtime_ns == entry.mtime_ns
        and info.st_size == entry.size
        and stat.S_ISREG(info.st_mode)
        and kept_mode(info.st_mode) == entry.mode
    )


def expectation(path: str, known: ExpectedState) -> dict[str, object] | None:
    """Return what the agent must find at a path if only tk has written it, or None."""
    row = known.rows.get(path)
    tried = known.tried.get(path, ())
    # What was pulled is the job's, also where sending an equal file has begun since.
    if path in known.pulled or (row is None and not tried):
        return None
    digests = {*tried, *((row.digest,) if row is not None and row.digest else ())}
    if row is None or not row.sent or path in known.forced:
        return {"stamp": "", "size": -1, "mtime_s": None, "digests": sorted(digests)}
    entry = row.entry
    # rsync protocols before 31 carry whole seconds. A symlink is recognized by its target.
    mtime_s = entry.mtime_ns // _NS if entry.kind == FILE else None
    size = entry.size if entry.kind == FILE else -1
    return {"stamp": row.stamp, "size": size, "mtime_s": mtime_s, "digests": sorted(digests)}


def _unlike(path: str, row: ManifestEntry | None, known: ExpectedState) -> str:
    """Return what the agent does with content that is not tk's: "backup" or "conflict".

    Content from before tk's first send is backed up and replaced. An edit of a user stays, until
    the user decides, and so does what a job has written to a file since it was pulled.
    """
    may_be_edited = (row is not None and row.sent) or path in known.pulled
    return "conflict" if may_be_edited and path not in known.ours else "backup"


class ParentDirs:
    """Parent directories of sent files, sent once each in case one is gone on the cluster."""

    def __init__(
        self, scan: Scan, rows: Mapping[str, ManifestEntry], changed: Collection[str]
    ) -> None:
        self._entries = scan.entries
        self._rows = rows
        #: directories of the batch have their own parcels
        self._changed = changed
        self._told: set[str] = set()

    def above(self, path: str) -> list[tuple[str, int, bool]]:
        """Return (path, mode, chmod) of each parent that was not returned yet, nearest first.

        chmod: True if the agent must set the mode of a directory that exists.
        """
        found: list[tuple[str, int, bool]] = []
        for above in parents(path):
            if above in self._told:
                break
            self._told.add(above)
            entry, row = self._entries.get(above), self._rows.get(above)
            if entry is not None and row is not None and above not in self._changed:
                # If tk made the directory, the agent restores permissions that a user took away.
                found.append((above, entry.mode, row.made))
        return found
