"""Small files of /proc and /sys: read whole, or "" where that is not allowed or gone."""

import os
import re
from typing import Dict, Iterator, List

_MOST_BYTES = 256 * 1024
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def text_of(path: str, most_bytes: int = _MOST_BYTES) -> str:
    """Return the file's beginning as text."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def whole_text_of(path: str, most_bytes: int = _MOST_BYTES) -> str:
    """Return the file as text, also if one read does not bring it all."""
    try:
        with open(path, "rb") as file:
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def names_in(path: str) -> List[str]:
    """Return the names in a directory; none if it can't be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def numbers_in(path: str) -> Iterator[int]:
    """Return the names that are numbers, such as pids in /proc."""
    return (int(name) for name in names_in(path) if name.isdigit())


def link_of(path: str) -> str:
    """Return where a symbolic link points to; "" if it can't be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def number_of(text: str) -> int:
    """Return the number that a text begins with; 0 if there is none."""
    words = text.split(None, 1)
    return int(words[0]) if words and words[0].isdigit() else 0


def field_of(text: str, name: str) -> str:
    """Return the value of a line `name: value` after the first line; "" if there is none."""
    begin = text.find(f"\n{name}:")
    if begin < 0:
        return ""
    begin += len(name) + 2
    end = text.find("\n", begin)
    return text[begin : end if end >= 0 else len(text)].strip()


def counters_of(text: str) -> Dict[str, int]:
    """Return lines `name number` as a dictionary; others are left out."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def stat_fields(text: str) -> List[str]:
    """Return the fields of /proc/PID/stat from the third on: state, parent, ... The second is a
    name in parentheses that may hold anything."""
    return text.rpartition(")")[2].split()


def allowed_cpus(text: str) -> List[int]:
    """Return the numbers of a list such as `0-3,8`; at most 4096."""
    found: List[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            found += range(int(first), min(int(last or first), int(first) + 4095) + 1)
    return found[:4096]


def proc_path(text: str) -> str:
    """Return a path as the kernel writes it into its lists: `\\040` is a blank."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
