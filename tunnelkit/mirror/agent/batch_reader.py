"""Reads the laptop's files as parcels for the live channel, and hashes them on the way.

Each file is read once, but big ones (big_file.py). All of this runs in a worker thread; nothing
here waits for the network.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator

from tunnelkit.mirror.agent.big_file import big_file
from tunnelkit.mirror.agent.path_header import (
    PIECE_BYTES,
    READ,
    ExpectedState,
    ParentDirs,
    Slice,
    announced,
    expectation,
    is_as_scanned,
    is_there,
)
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import same_content
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK, Entry, Scan, lstat, racy
from tunnelkit.mux.parcels import encode, head

#: Size of one slice of a batch: it is read completely before it is sent.
SLICE_BYTES = 1 << 20
SLICE_PATHS = 500
#: Bigger files are never in memory as a whole. If there is rsync, it sends them: it transfers only
#: the changed parts.
WHOLE_BYTES = 8 << 20


def is_big(entry: Entry | None) -> bool:
    """Return True for a file that is sent apart from the small ones."""
    return entry is not None and entry.kind == FILE and entry.size > WHOLE_BYTES


def slices(root: str, scan: Scan, difference: diff.Diff, known: ExpectedState) -> Iterator[Slice]:
    """Read what may have changed, directories first (blocking)."""
    piece, ways = Slice(), ParentDirs(scan, known.rows, difference.changed)
    parts: list[bytes] = []
    size_bytes = 0
    paths = sorted(difference.changed, key=lambda one: difference.changed[one].kind != DIR)
    for path in paths:
        entry = difference.changed[path]
        if path in scan.unreadable:
            continue  # a directory: must not get these permissions on the cluster
        if is_big(entry):
            if parts or piece.refreshed:
                piece.data = b"".join(parts)
                yield piece
                piece, parts, size_bytes = Slice(), [], 0
            yield from big_file(root, path, entry, known, ways)
            continue
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


def _one(
    root: str, path: str, entry: Entry, known: ExpectedState, piece: Slice, ways: ParentDirs
) -> list[bytes] | None:
    """Return the parcels of one path: [] if nothing must be sent, None if it changed meanwhile."""
    seen_ns = time.time_ns()
    if entry.kind == DIR:
        return _directory(path, entry, known, piece)
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
    header = announced(path, entry, text, known, piece, ways, is_racy=is_racy)
    if header is None:
        return []
    if entry.kind == LINK:
        return [encode({"op": "link", "target": target, **header})]
    if content and is_there(path, text, known):
        return [encode({"op": "meta", **header})]
    return _file(header, content)


def _directory(path: str, entry: Entry, known: ExpectedState, piece: Slice) -> list[bytes]:
    row = known.rows.get(path)
    if path not in known.forced and same_content(row, entry, ""):
        piece.refreshed[path] = (entry, False)
        return []
    piece.sends[path] = (entry, "", False)
    was_file = row is not None and row.entry.kind != DIR
    new = row is None or not row.sent or was_file
    way = {"op": "dir", "path": path, "mode": entry.mode, "new": new, "chmod": True}
    return [*([deletion(path, known)] if was_file else []), encode(way)]


def _file(header: dict[str, object], content: bytes) -> list[bytes]:
    if len(content) <= PIECE_BYTES:
        # In two parts, since the whole slice is joined once anyway.
        return [head({"op": "file", **header}, len(content)), content]
    parcels = [encode({"op": "file", "more": True, **header}, content[:PIECE_BYTES])]
    for begin in range(PIECE_BYTES, len(content), PIECE_BYTES):
        last = begin + PIECE_BYTES >= len(content)
        piece = content[begin : begin + PIECE_BYTES]
        parcels.append(encode({"op": "data", "last": last}, piece))
    return parcels


def _read(full: str, entry: Entry) -> bytes | None:
    """Return the content, or None if the file is no longer what `entry` says."""
    fd = os.open(full, READ)
    try:
        content, size = os.read(fd, entry.size + 1), entry.size
        while 0 < len(content) < size:
            more = os.read(fd, size + 1 - len(content))
            if not more:
                break
            content += more
        return content if len(content) == size and is_as_scanned(fd, entry) else None
    finally:
        os.close(fd)
