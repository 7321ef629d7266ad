"""The ranks that a user selects: `0,2`, `0-3`, `all`."""

from __future__ import annotations

import re

from tunnelkit.errors import UsageError

_MAX_RANKS = 1_000_000
_PART = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


def parse_ranks(text: str) -> list[int] | None:
    """The ranks of `text`, sorted; None for all. Raises UsageError for anything else."""
    if text.strip().lower() == "all":
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if last < first or last >= _MAX_RANKS:
            raise UsageError(
                f"--rank {text!r} names no ranks", hint="for example: --rank 0,2 or --rank 0-3"
            )
        found.update(range(first, last + 1))
    return sorted(found)
