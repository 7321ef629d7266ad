"""Reads a big file as parcels: first its digest, then its content, one parcel at a time."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator

from tunnelkit.mirror.agent.path_header import (
    PIECE_BYTES,
    READ,
    ExpectedState,
    ParentDirs,
    Slice,
    announced,
    is_as_scanned,
    is_there,
)
from tunnelkit.mirror.tree.scanner import Entry, racy
from tunnelkit.mux.parcels import encode


def big_file(
    root: str, path: str, entry: Entry, known: ExpectedState, ways: ParentDirs
) -> Iterator[Slice]:
    """Return the slices of one file (blocking), a parcel each: saves go between them.

    If the file changes meanwhile, the last one drops it.
    """
    try:
        fd = os.open(os.path.join(root, path), READ)
    except (FileNotFoundError, IsADirectoryError):
        yield Slice(changing={path})
        return
    except OSError as error:
        yield Slice(failed={path: _unreadable(error)})
        return
    began = False
    try:
        for piece in _pieces(fd, path, entry, known, ways):
            began = began or bool(piece.sends)
            yield piece
    except OSError as error:
        drop = _drop(path) if began else Slice()
        drop.failed[path] = _unreadable(error)
        yield drop
    finally:
        os.close(fd)


def _pieces(
    fd: int, path: str, entry: Entry, known: ExpectedState, ways: ParentDirs
) -> Iterator[Slice]:
    seen_ns, piece = time.time_ns(), Slice()
    text = _digest(fd)
    if not is_as_scanned(fd, entry):
        yield Slice(changing={path})
        return
    is_racy = racy(entry, seen_ns)
    header = announced(path, entry, text, known, piece, ways, is_racy=is_racy)
    if header is None:
        yield piece
        return
    if is_there(path, text, known):
        piece.data, piece.size_bytes = encode({"op": "meta", **header}), entry.size
        yield piece
        return
    opening: dict[str, object] = {"op": "file", "more": entry.size > PIECE_BYTES, **header}
    offset = 0
    while offset < entry.size:
        content = os.pread(fd, min(PIECE_BYTES, entry.size - offset), offset)
        offset += len(content)
        is_last = offset >= entry.size
        if not content or (is_last and not is_as_scanned(fd, entry)):
            yield Slice(changing={path}) if opening else _drop(path)
            return
        piece.data = encode(opening or {"op": "data", "last": is_last}, content)
        piece.size_bytes, piece.goes_on = len(content), not is_last
        yield piece
        piece, opening = Slice(), {}


def _drop(path: str) -> Slice:
    return Slice(data=encode({"op": "drop"}), changing={path}, dropped={path})


def _digest(fd: int) -> str:
    with open(fd, "rb", buffering=0, closefd=False) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _unreadable(error: OSError) -> str:
    return f"can't be read: {error.strerror or error}"
