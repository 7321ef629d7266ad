"""The host aliases of the user's ~/.ssh/config, for completion and questions."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

#: As ssh has it, against files that include each other.
_DEEPEST = 16
_MOST_BYTES = 1 << 20
_LINE = re.compile(r"([^\s=]+)(?:\s*=\s*|\s+)(.*)")


def ssh_aliases(file: Path | None = None) -> list[str]:
    """The names after `Host`, also of included files, without patterns, in their order. What
    can't be read has none. Source: ssh_config(5)."""
    file = Path.home() / ".ssh" / "config" if file is None else file
    return list(dict.fromkeys(_names(file, file.parent, 0)))


def _names(file: Path, base: Path, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    try:
        if not file.is_file():
            return  # a pipe would never end
        with file.open("rb") as stream:
            text = stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        keyword, words = _parsed(line)
        if keyword == "host":
            yield from (word for word in words if word.isprintable() and not set(word) & set("*?!"))
        elif keyword == "include":
            for word in words:
                pattern = base / os.path.expanduser(word)
                for found in sorted(glob.glob(str(pattern))):
                    yield from _names(Path(found), base, depth + 1)


def _parsed(line: str) -> tuple[str, list[str]]:
    """A line's keyword in small letters, and the words after it."""
    found = _LINE.match(line.strip())
    if found is None or line.lstrip().startswith("#"):
        return "", []
    try:
        return found[1].lower(), shlex.split(found[2])
    except ValueError:  # a quote without its end
        return "", []
