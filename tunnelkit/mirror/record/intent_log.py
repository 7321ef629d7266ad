"""Intent log: notes, appended to a file, of what is about to be sent.

An SQLite transaction takes ten times as long for a save, which waits for it, and twice as long for
a first copy. The notes hold until the manifest has recorded the result of those paths. After a kill
-9 they are read back.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

#: The file may always be this long. Beyond that, it is written again whenever it has doubled.
_ROOM_BYTES = 1 << 20

_T = TypeVar("_T")
_encode = json.JSONEncoder(separators=(",", ":")).encode


class IntentLog:
    """The notes of one manifest. `open`, then `close`. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._open: dict[str, Sequence[object]] = {}
        self._limit_bytes = _ROOM_BYTES

    def open(self, row: Callable[..., _T]) -> dict[str, _T]:
        """Open the file, and return the notes of a killed session by path. Raises OSError.

        row: makes one of the values that were noted.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o600)
        found: dict[str, Sequence[object] | None] = {}
        for line in self._path.read_bytes().splitlines():
            # A last line that was cut short was not sent.
            with contextlib.suppress(ValueError, TypeError):
                found.update(json.loads(line))
        self._open = {path: values for path, values in found.items() if values is not None}
        rows = {path: row(*values) for path, values in self._open.items()}
        if not rows:
            os.ftruncate(self._fd, 0)  # nothing may be written behind such a line
        return rows

    def add(self, rows: Mapping[str, Sequence[object]]) -> None:
        """Note what each path will be: one line, read back as a whole or not at all.

        Raises OSError; then nothing may be sent.
        """
        self._write(rows)
        self._open.update(rows)
        if os.fstat(self._fd).st_size > self._limit_bytes:
            self._shorten()

    def any_of(self, paths: Collection[str]) -> bool:
        """Return True if there is a note of one of these paths."""
        return not self._open.keys().isdisjoint(paths)

    def settled(self, paths: Iterable[str]) -> None:
        """Drop the notes of these paths: the manifest has their results. Raises OSError."""
        known = self._open.keys() & set(paths)
        if not known:
            return
        if len(known) < len(self._open):
            self._write(dict.fromkeys(known))
        else:
            os.ftruncate(self._fd, 0)
            self._limit_bytes = _ROOM_BYTES
        for path in known:
            del self._open[path]

    def _shorten(self) -> None:
        """Write the open notes into a new file: a path that fails is noted again and again."""
        new = self._path.with_name(f"{self._path.name}-new")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        old = self._fd
        try:
            self._fd = os.open(new, flags, 0o600)
            self._write(self._open)
            os.replace(new, self._path)
        except OSError:
            if self._fd != old:
                os.close(self._fd)
                new.unlink(missing_ok=True)
            self._fd = old  # the long one is right, too
        else:
            os.close(old)
        self._limit_bytes = max(_ROOM_BYTES, 2 * os.fstat(self._fd).st_size)

    def _write(self, values: Mapping[str, Sequence[object] | None]) -> None:
        text = (_encode(values) + "\n").encode()
        written = os.write(self._fd, text)
        if written < len(text):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self) -> None:
        """Close the file. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
