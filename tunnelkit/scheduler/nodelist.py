"""Slurm's node list expressions, `node[1-3,07-09],gpu1`, in pure Python.

`scontrol show hostnames` would cost one more command on the login host. Grammar: man squeue,
"NODELIST", and man scontrol, "show hostlist".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import check_host

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")

#: More names than any cluster has: a corrupt `[0-999999999]` must not fill memory.
MAX_NODES = 100_000


def expand(text: str) -> tuple[str, ...]:
    """Return the node names in order, zero padding kept. Raises SchedulerError if malformed.

    A name goes to ssh, and to a shell's command line by TAB: it has no character that one of them
    would expand."""
    names: list[str] = []
    for item in _split(text):
        choices = [_choices(part, text) for part in _parts(item, text)]
        total = len(names)
        for choice in choices:
            total = max(total, 1) * len(choice)
        if total > MAX_NODES:
            raise _malformed(text)
        names.extend("".join(words) for words in product(*choices))
    try:
        return tuple(map(check_host, names))
    except UsageError:
        raise _malformed(text) from None


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth = 0
    item = ""
    for char in text.strip():
        depth += {"[": 1, "]": -1}.get(char, 0)
        if not 0 <= depth <= 1:
            raise _malformed(text)
        if char == "," and depth == 0:
            yield item
            item = ""
        else:
            item += char
    if depth:
        raise _malformed(text)
    if item:
        yield item


def _parts(item: str, text: str) -> list[str]:
    """Split `a[1-2]b[3]` into `a`, `[1-2]`, `b`, `[3]`."""
    parts = [part for part in re.split(r"(\[[^\]]*\])", item) if part]
    if not parts or any(re.search(r"[\s,()]", p) for p in parts if not p.startswith("[")):
        raise _malformed(text)
    return parts


def _choices(part: str, text: str) -> list[str]:
    if not part.startswith("["):
        return [part]
    words: list[str] = []
    for item in part[1:-1].split(","):
        match = _RANGE.fullmatch(item)
        if not match:
            raise _malformed(text)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= MAX_NODES:
            raise _malformed(text)
        words.extend(str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    return words


def _malformed(text: str) -> SchedulerError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return SchedulerError(
        f"{shown!r} is not a node list that Slurm would print",
        hint="please report it: tk bugreport",
    )
