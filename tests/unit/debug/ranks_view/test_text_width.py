"""Text shortened and wrapped to columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.ranks_view.text_width import cut, short_place, short_ranks, width, wrapped


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("a", 0, ""),
    ],
)
def test_cut(text: str, columns: int, expected: str) -> None:
    assert cut(text, columns) == expected


@pytest.mark.parametrize(
    ("folded", "columns", "expected"),
    [
        ("0-3,7,9-11", 10, "0-3,7,9-11"),
        ("0-3,7,9-11", 9, "0-3,7,…"),
        ("0-3,7,9-11", 5, "0-3,…"),
        ("1000-1003,7", 5, "1000…"),
    ],
)
def test_ranks_are_shortened_by_whole_parts(folded: str, columns: int, expected: str) -> None:
    assert short_ranks(folded, columns) == expected


@pytest.mark.parametrize(
    ("path", "columns", "expected"),
    [
        ("/home/ada/train.py", 21, "/home/ada/train.py:88"),
        ("/home/ada/train.py", 20, "…/ada/train.py:88"),
        ("/home/ada/train.py", 13, "…/train.py:88"),
        ("train.py", 10, "train.…:88"),
        ("train.py", 3, "tr…"),
    ],
)
def test_places_keep_the_name_of_the_file(path: str, columns: int, expected: str) -> None:
    assert short_place(path, 88, columns) == expected


@given(st.text(), st.integers(-2, 40))
def test_nothing_is_wider_than_asked(text: str, columns: int) -> None:
    room = max(columns, 0)
    assert width(cut(text, columns)) <= room
    assert width(short_ranks(text, columns)) <= max(room, 2)
    assert width(short_place(text, 7, columns)) <= room
    assert all(width(line) <= room for line in wrapped(text, columns))
    assert list(wrapped(text, width(text))) == [text]
