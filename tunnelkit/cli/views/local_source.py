"""Lines of source files on the laptop, for what is shown beside a place."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_LONGEST_BYTES = 4 << 20


@lru_cache(maxsize=64)
def lines_of(file: str) -> list[str] | None:
    """Return the lines of a file; None if it can't be read, or is too long for a source."""
    path = Path(file)
    try:
        if not path.is_absolute() or path.stat().st_size > _LONGEST_BYTES:
            return None
        return path.read_text("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return None
