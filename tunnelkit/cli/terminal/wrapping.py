"""Long lines, broken at words for a terminal of so many columns."""

from __future__ import annotations

import re
import unicodedata

#: Narrower than this, or of unknown width: left to the terminal.
_NARROWEST = 20
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
# Text to copy stays whole: code in backticks, a command at the end, a colour's span.
_WORD = re.compile(r"(?:`[^`]*`|(?<=: )tk [a-z][^;]*$|\S)+")


def fit(text: str, columns: int) -> str:
    """Break `text` into lines of at most so many columns; a longer word stays whole.

    Further lines of a line are indented as it is. JSON is left as it is.
    """
    if columns < _NARROWEST or text.startswith(("{", "[")):
        return text
    return "\n".join(_fit_line(line, columns) for line in text.split("\n"))


def width_of(text: str) -> int:
    """Return the number of columns on a terminal."""
    plain = _ESCAPE.sub("", text)
    if plain.isascii():
        return len(plain)
    return sum(_columns(char) for char in plain)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fit_line(line: str, columns: int) -> str:
    if width_of(line) <= columns:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    lines, end, room = [line[: len(indent)]], len(indent), columns - len(indent)
    for word in _WORD.finditer(line, len(indent)):
        gap = line[end : word.start()]  # of a table's row: more than one blank
        taken = width_of(lines[-1]) - len(indent)
        if taken and taken + len(gap) + width_of(word[0]) > room:
            lines.append(indent + word[0])
        else:
            lines[-1] += gap + word[0]
        end = word.end()
    return "\n".join(lines)
