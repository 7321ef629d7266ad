"""Reads the laptop's files as parcels for the live channel, and hashes them on the way.

Each file is read once. All of this runs in a worker thread; nothing here waits for the network.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import ManifestEntry, same_content
from tunnelkit.mirror.tree.paths import parents
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK, Entry, Scan, kept_mode, lstat, racy
from tunnelkit.mux.parcels import encode, head

#: Size of one slice of a batch: it is read completely before it is sent.
SLICE_BYTES = 1 << 20
SLICE_PATHS = 500
#: At most this much of a file in one parcel.
_PIECE_BYTES = 512 << 10
_NS = 1_000_000_000
# The file may have become a symlink or a fifo since the scan.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Slice:
    """Some paths of a batch.

    sends: (entry, digest, racy) of the paths in `data`, as they were read.
    refreshed: (entry, racy) of paths whose content is on the cluster already.
    changing: paths that changed while they were read. failed: paths that can't be read, and why.
    last: True if no slice follows.
    """

    data: bytes = b""
    sends: dict[str, tuple[Entry, str, bool]] = field(default_factory=dict)
    refreshed: dict[str, tuple[Entry, bool]] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    last: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """The expected remote state.

    rows: what was sent.
    tried: digests that were sent without an answer.
    forced: send these whatever is recorded.
    ours: the laptop's version wins in any case.
    """

    rows: Mapping[str, ManifestEntry]
    tried: Mapping[str, Collection[str]]
    forced: Collection[str] = ()
    ours: Collection[str] = ()


def slices(root: str, scan: Scan, difference: diff.Diff, known: ExpectedState) -> Iterator[Slice]:
    """Read what may have changed, directories first (blocking)."""
    piece, ways = Slice(), _ParentDirs(scan, known.rows, difference.changed)
    parts: list[bytes] = []
    size_bytes = 0
    paths = sorted(difference.changed, key=lambda one: difference.changed[one].kind != DIR)
    for path in paths:
        entry = difference.changed[path]
        if path in scan.unreadable:
            continue  # a directory: must not get these permissions on the cluster
        try:
            found = _one(root, path, entry, known, piece, ways)
        except (FileNotFoundError, IsADirectoryError):
            found = None
        except OSError as error:
            piece.failed[path] = f"can't be read: {error.strerror or error}"
            continue
        if found is None:
            piece.changing.add(path)
            continue
        for part in found:
            parts.append(part)
            size_bytes += len(part)
        if found:
            piece.size_bytes += entry.size
        if size_bytes >= SLICE_BYTES or len(piece.sends) >= SLICE_PATHS:
            piece.data = b"".join(parts)
            yield piece
            piece, parts, size_bytes = Slice(), [], 0
    piece.data = b"".join(parts)
    piece.last = True
    yield piece


def deletion(path: str, known: ExpectedState) -> bytes:
    """Return the parcel that deletes one path."""
    row = known.rows[path]
    if row.entry.kind == DIR:
        return encode({"op": "rmdir", "path": path}) if row.made else b""
    return encode({"op": "del", "path": path, "expect": expectation(path, known)})


def expectation(path: str, known: ExpectedState) -> dict[str, object] | None:
    """Return what the agent must find at a path if only tk has written it, or None."""
    row = known.rows.get(path)
    tried = known.tried.get(path, ())
    if row is None and not tried:
        return None
    digests = {*tried, *((row.digest,) if row is not None and row.digest else ())}
    if row is None or not row.sent or path in known.forced:
        return {"stamp": "", "size": -1, "mtime_s": None, "digests": sorted(digests)}
    entry = row.entry
    # rsync protocols before 31 carry whole seconds. A symlink is recognized by its target.
    mtime_s = entry.mtime_ns // _NS if entry.kind == FILE else None
    size = entry.size if entry.kind == FILE else -1
    return {"stamp": row.stamp, "size": size, "mtime_s": mtime_s, "digests": sorted(digests)}


class _ParentDirs:
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


def _one(
    root: str, path: str, entry: Entry, known: ExpectedState, piece: Slice, ways: _ParentDirs
) -> list[bytes] | None:
    """Return the parcels of one path: [] if nothing must be sent, None if it changed meanwhile."""
    row, seen_ns = known.rows.get(path), time.time_ns()
    forced = path in known.forced
    if entry.kind == DIR:
        if not forced and same_content(row, entry, ""):
            piece.refreshed[path] = (entry, False)
            return []
        piece.sends[path] = (entry, "", False)
        was_file = row is not None and row.entry.kind != DIR
        new = row is None or not row.sent or was_file
        way = {"op": "dir", "path": path, "mode": entry.mode, "new": new, "chmod": True}
        return [*([deletion(path, known)] if was_file else []), encode(way)]
    if entry.kind == LINK:
        target = os.readlink(os.path.join(root, path))
        content, text = b"", hashlib.sha256(os.fsencode(target)).hexdigest()
        if lstat(root, path) != entry:
            return None
    else:
        target = ""
        read = _read(os.path.join(root, path), entry)
        if read is None:
            return None
        content, text = read, hashlib.sha256(read).hexdigest()
    is_racy = racy(entry, seen_ns)
    if not forced and same_content(row, entry, text):
        piece.refreshed[path] = (entry, is_racy)
        return []
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
    if entry.kind == LINK:
        return [encode({"op": "link", "target": target, **header})]
    header.update(mode=entry.mode, size=entry.size)
    there = row is not None and row.sent and row.entry.kind == FILE and row.digest == text
    if there and not forced and content:
        return [encode({"op": "meta", **header})]
    return _file(header, content)


def _unlike(path: str, row: ManifestEntry | None, known: ExpectedState) -> str:
    """Return what the agent does with content that is not tk's: "backup" or "conflict".

    Content from before tk's first send is backed up and replaced. An edit of a user stays, until
    the user decides.
    """
    return "conflict" if row is not None and row.sent and path not in known.ours else "backup"


def _file(header: dict[str, object], content: bytes) -> list[bytes]:
    if len(content) <= _PIECE_BYTES:
        # In two parts, since the whole slice is joined once anyway.
        return [head({"op": "file", **header}, len(content)), content]
    parcels = [encode({"op": "file", "more": True, **header}, content[:_PIECE_BYTES])]
    for begin in range(_PIECE_BYTES, len(content), _PIECE_BYTES):
        last = begin + _PIECE_BYTES >= len(content)
        piece = content[begin : begin + _PIECE_BYTES]
        parcels.append(encode({"op": "data", "last": last}, piece))
    return parcels


def _read(full: str, entry: Entry) -> bytes | None:
    """Return the content, or None if the file is no longer what `entry` says."""
    fd = os.open(full, _READ)
    try:
        content, size = os.read(fd, entry.size + 1), entry.size
        while 0 < len(content) < size:
            more = os.read(fd, size + 1 - len(content))
            if not more:
                break
            content += more
        # Stat after reading, and of the opened file. If the path names another file by now, an
        # event says so.
        info = os.fstat(fd)
        same = (
            info.st_ino == entry.inode
            and info.st_ctime_ns == entry.ctime_ns
            and info.st_mtime_ns == entry.mtime_ns
            and info.st_size == size
            and stat.S_ISREG(info.st_mode)
            and kept_mode(info.st_mode) == entry.mode
        )
        return content if same else None
    finally:
        os.close(fd)
