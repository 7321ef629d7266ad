"""Lines of source files on the laptop, for what is shown beside a place."""

from __future__ import annotations

import os
import stat
from functools import lru_cache

_LONGEST_BYTES = 4 << 20


def lines_of(file: str) -> list[str] | None:
    """Return the lines of a file as it is now; None if it can't be read, or is no source.

    A node may name any file: a device or a pipe is not read, nor one that is too long.
    """
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    is_source = stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST_BYTES
    if not os.path.isabs(file) or not is_source:
        return None
    return _read(file, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _read(file: str, *_version: int) -> list[str] | None:
    try:
        with open(file, "rb", opener=_without_waiting) as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                return None
            data = source.read(_LONGEST_BYTES + 1)
    except OSError:
        return None
    return data.decode("utf-8", "replace").splitlines() if len(data) <= _LONGEST_BYTES else None


def _without_waiting(path: str, flags: int) -> int:
    """Open a file that may have become a pipe or a terminal since it was looked at."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
