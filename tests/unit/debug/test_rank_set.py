"""`--rank`: which ranks a person means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.rank_set import parse_ranks
from tunnelkit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("0", [0]), ("0,2", [0, 2]), ("2, 0,2", [0, 2]), ("0-3", [0, 1, 2, 3]), ("1-2,7", [1, 2, 7]),
     ("0:4", [0, 1, 2, 3]), (":6:2,9", [0, 2, 4, 9]), ("999999", [999_999]), ("4:2, 1", [1]),
     ("rank=(0,2:4)", [0, 2, 3]), ("0-7, !3,!5-6", [0, 1, 2, 4, 7])],
)  # fmt: skip
def test_ranks_are_read(text: str, ranks: list[int]) -> None:
    assert parse_ranks(text) == ranks


def test_all_is_no_choice() -> None:
    assert parse_ranks("all") is None
    assert parse_ranks(" ALL ") is None
    assert parse_ranks("*") is None
    assert parse_ranks("0,all") is None


@pytest.mark.parametrize(
    "text", ["", ",", "-1", "3-1", "a", "0-", "1.5", "0,,2", "9999999", "4:2", "0-999999,0:2"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--rank"):
        parse_ranks(text)


@pytest.mark.parametrize(
    "text", ["2:", ":", "::2", "!2:", "!all", "stopped", "failed", "@B", "node=1", "rank=2:"]
)
@pytest.mark.parametrize("before", ["", "0, ", "all, "])
def test_what_needs_a_running_program_is_refused(text: str, before: str) -> None:
    if before and "=" in text:
        before = "local=0, "
    with pytest.raises(UsageError, match=r"--rank .*no program runs yet"):
        parse_ranks(before + text)


@pytest.mark.parametrize("text", ["!0", "all, !0", "*,!1-2"])
def test_all_but_some_needs_their_number(text: str) -> None:
    with pytest.raises(UsageError, match=r"column \d, which ranks are left .*no program runs yet"):
        parse_ranks(text)
    with pytest.raises(UsageError, match="names no ranks"):
        parse_ranks("0,1,!0-1")


@pytest.mark.parametrize("text", ["node=1", "local=0, rank=0", "gpu=0", "rank=1, hosts=0"])
def test_dimensions_are_known_only_when_ranks_run(text: str) -> None:
    with pytest.raises(UsageError, match="where each rank will be is not known: no program runs"):
        parse_ranks(text)


def test_a_refusal_names_the_column_and_escapes_the_text() -> None:
    with pytest.raises(UsageError, match=r"column 3"):
        parse_ranks("0,,2")
    with pytest.raises(UsageError) as caught:
        parse_ranks("0\x1b[31m" + "x" * 5000)
    assert caught.value.one_line().isprintable()
    assert len(caught.value.one_line()) < 250


@given(st.text("0123456789,-:*! al", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        ranks = parse_ranks(text)
    except UsageError:
        return
    assert ranks is None or (ranks and ranks == sorted(set(ranks)))


@given(st.sets(st.integers(0, 5000), min_size=1))
def test_a_list_comes_back(ranks: set[int]) -> None:
    assert parse_ranks(",".join(map(str, ranks))) == sorted(ranks)
