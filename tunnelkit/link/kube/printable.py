"""Text of an API server or kubectl, safe in one line of a message."""

from __future__ import annotations

_MOST_CHARS = 600


def printable(text: str, most_chars: int = _MOST_CHARS) -> str:
    """Return `text` in one line, bounded, without control characters of a terminal."""
    line = " ".join(text[: 4 * most_chars].split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= most_chars else line[: most_chars - 1] + "…"
