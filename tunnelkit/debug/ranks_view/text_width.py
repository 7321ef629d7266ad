"""Text of the cluster in a given number of columns: measured, shortened, wrapped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

ELLIPSIS = "…"


def width(text: str) -> int:
    """The columns that printable text takes in a terminal, at most."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def cut(text: str, columns: int) -> str:
    """`text`, or its beginning and an ellipsis, in at most `columns`."""
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[: columns - 1] if len(text) > columns else text[:-1]
    return text + ELLIPSIS if columns > 0 else ""


def padded(text: str, columns: int) -> str:
    """`text` in exactly `columns`, or more if it is wider."""
    return text + " " * (columns - width(text))


def short_ranks(folded: str, columns: int) -> str:
    """Ranks as `0-3,7,…`: whole parts only, as long as one fits."""
    if width(folded) <= columns:
        return folded
    head = folded[: max(columns - 1, 0)].rpartition(",")[0]
    return f"{head},{ELLIPSIS}" if head else cut(folded, columns)


def short_place(path: str, line: int, columns: int) -> str:
    """`train.py:88`; `…/train.py:88` if the whole path does not fit."""
    number = f":{line}" if line > 0 else ""
    while width(path) + len(number) > columns and "/" in path.removeprefix(ELLIPSIS + "/"):
        path = f"{ELLIPSIS}/{path.removeprefix(ELLIPSIS + '/').partition('/')[2]}"
    room = columns - len(number)
    return cut(path, room) + number if room > 1 else cut(path + number, columns)


def wrapped(text: str, columns: int, between: str = " ") -> Iterator[str]:
    """Lines of at most `columns`, broken at `between`; a longer word is cut."""
    line, *words = (cut(word, columns) for word in text.split(between))
    for word in words:
        if width(line) + width(between) + width(word) > columns:
            yield line
            line = word
        else:
            line += between + word
    yield line
