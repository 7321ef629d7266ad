"""A log's lines, sorted by the rank that wrote them: labels of srun, mpirun, torch are removed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

#: More is cut off at the front; a longer line at its end.
LONGEST_TEXT = 2_000_000
_MOST_LINES = 50_000
_LONGEST_LINE = 4_000
#: srun's label may stand before torch's, and a time before both.
_MOST_LABELS = 3

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
# A label counts only if a traceback begins behind it: `3: ` alone may be the program's own.
_BEGIN = (
    r"(?:Traceback \(most recent call last\):|  \+ Exception Group Traceback|"
    r'Fatal Python error: |  File "[^"]{1,500}", line [0-9]{1,7})'
)
_LABELS = (
    # docker, Kubernetes, `ts`: a time and nothing else
    r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?\]?",
    # mpirun --tag-output
    r"\[(?:[^\s\]]{1,100}@)?[0-9]{1,7},(?P<rank>[0-9]{1,7})\]<std(?:out|err)>:",
    # torch, once its process group is there
    r"\[rank(?P<rank>[0-9]{1,7})\]:",
    # torchrun --tee: the number is the rank on its node
    r"\[(?P<local>[A-Za-z_]{1,30}[0-9]{1,7})\]:",
    # srun -l
    r" {0,7}(?P<rank>[0-9]{1,7}):",
)
_FURTHER = "(?:(?:{}) ?){{0,{}}}".format(
    "|".join(re.sub(r"\?P<[a-z]+>", "?:", label) for label in _LABELS), _MOST_LABELS - 1
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its labels. number: from 1, in the whole text."""

    number: int
    text: str
    rank: int | None = None
    label: str = ""


@dataclass(slots=True)
class Stream:
    """The lines of one rank. rank: None if nothing says it."""

    label: str
    rank: int | None
    lines: list[Line] = field(default_factory=list)


def streams(text: str) -> list[Stream]:
    """Sort the lines of a log by the rank that wrote them, as far as their labels say it."""
    lines = split_lines(text)
    for _ in range(_MOST_LABELS):
        label = _label_of(lines)
        if label is None:
            break
        lines = [_without(line, label) for line in lines]
    found: dict[str, Stream] = {}
    for line in lines:
        stream = found.setdefault(line.label, Stream(line.label, line.rank))
        stream.lines.append(line)
    return list(found.values())


def split_lines(text: str) -> list[Line]:
    """Return the lines of the end of a text, without colours."""
    skipped, at = max(0, len(text) - LONGEST_TEXT), len(text)
    for _ in range(_MOST_LINES):
        at = text.rfind("\n", skipped, at)
        if at < 0:
            break
    else:
        skipped = at + 1
    first = 1 + text.count("\n", 0, skipped)
    parts = _COLOUR.sub("", text[skipped:]).split("\n")
    return [Line(first + at, part[:_LONGEST_LINE].rstrip("\r")) for at, part in enumerate(parts)]


def _label_of(lines: list[Line]) -> Callable[[str], re.Match[str] | None] | None:
    """Return what matches the label that stands before a traceback's first line."""
    for label in _LABELS:
        begin = re.compile(label + "(?P<blank> ?)" + _FURTHER + _BEGIN)
        for line in lines:
            match = begin.match(line.text) if _may_begin(line.text) else None
            if match:
                return partial(re.match, label + ("(?: |$)" if match["blank"] else ""))
    return None


def _may_begin(text: str) -> bool:
    return "Traceback" in text or "Fatal Python" in text or 'File "' in text


def _without(line: Line, label: Callable[[str], re.Match[str] | None]) -> Line:
    match = label(line.text)
    if match is None:
        return line
    groups = match.groupdict()
    rank, local = groups.get("rank"), groups.get("local")
    mark = f"{line.label}/{rank or local}" if rank or local else line.label
    return Line(line.number, line.text[match.end() :], int(rank) if rank else line.rank, mark)
