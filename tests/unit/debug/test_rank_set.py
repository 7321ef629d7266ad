"""`--rank`: which ranks a person means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.rank_set import parse_ranks
from tunnelkit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("0", [0]), ("0,2", [0, 2]), ("2, 0,2", [0, 2]), ("0-3", [0, 1, 2, 3]), ("1-2,7", [1, 2, 7])],
)
def test_ranks_are_read(text: str, ranks: list[int]) -> None:
    assert parse_ranks(text) == ranks


def test_all_is_no_choice() -> None:
    assert parse_ranks("all") is None
    assert parse_ranks(" ALL ") is None


@pytest.mark.parametrize("text", ["", ",", "-1", "3-1", "a", "0-", "1.5", "0,,2", "9999999"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--rank"):
        parse_ranks(text)


@given(st.sets(st.integers(0, 5000), min_size=1))
def test_a_list_comes_back(ranks: set[int]) -> None:
    assert parse_ranks(",".join(map(str, ranks))) == sorted(ranks)
