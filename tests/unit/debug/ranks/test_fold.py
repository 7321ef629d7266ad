"""Ranks and answers of many ranks, folded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.ranks.fold import (
    AnswerBlock,
    fold_answers,
    fold_ranks,
    number_grid,
    unfold_ranks,
)


def members_of(text: str) -> set[int]:
    """The members of a folded text, by its definition."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        ends, _, step = part.partition("/")
        first, _, last = ends.partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([0, 1], "0-1"),
        ([7, 3, 2, 1, 0, 3], "0-3,7"),
        ([*range(47), *range(48, 64)], "0-46,48-63"),
        ([0, 4, 8], "0,4,8"),
        ([0, 4, 8, 12], "0-12/4"),
        ([1, 3, 5, 7, 8, 9], "1-7/2,8-9"),
        ([0, 2, 4, 5, 6], "0,2,4-6"),
        ([0, 1, 4, 8, 12, 16], "0-1,4-16/4"),
        (range(1024), "0-1023"),
    ],
)
def test_ranks_are_folded(ranks: list[int], text: str) -> None:
    assert fold_ranks(ranks) == text


@given(st.sets(st.integers(0, 200)) | st.sets(st.integers(0, 9_999_999)))
def test_a_folded_text_has_the_same_ranks(ranks: set[int]) -> None:
    assert members_of(fold_ranks(ranks)) == ranks
    assert unfold_ranks(fold_ranks(ranks)) == tuple(sorted(ranks))


@given(st.sets(st.integers(0, 40)))
def test_steps_are_for_four_members_or_more(ranks: set[int]) -> None:
    for part in fold_ranks(ranks).split(","):
        assert "/" not in part or len(members_of(part)) >= 4


def test_equal_answers_are_one_block_in_the_order_of_ranks() -> None:
    assert fold_answers({3: "b", 0: "a", 2: "b", 1: "c"}) == [
        AnswerBlock((0,), "a"),
        AnswerBlock((1,), "c"),
        AnswerBlock((2, 3), "b"),
    ]


def test_addresses_are_no_difference_and_the_first_is_kept() -> None:
    texts = {rank: f"[<X at 0x7f00{rank:04x}>, <Y at 0x7fff{rank:08X}>]" for rank in range(8)}
    assert fold_answers(texts) == [AnswerBlock(tuple(range(8)), texts[0], addresses_differ=True)]
    assert not fold_answers(dict.fromkeys(range(8), texts[0]))[0].addresses_differ


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<X at 0x12345>", "<X at 0x12346>"),  # 5 digits
        ("0x7f0000001", "0x7f0000002"),  # a number, no address
        ("<X at 0x1234567>", "<Y at 0x1234567>"),
        ("X at 0x1234567", "X at 0x"),
        ("a", "A"),
    ],
)
def test_other_differences_count(one: str, other: str) -> None:
    assert len(fold_answers({0: one, 1: other})) == 2


@given(st.dictionaries(st.integers(0, 99), st.text("ab at0x1234567", max_size=20)))
def test_each_rank_is_in_one_block(answers: dict[int, str]) -> None:
    blocks = fold_answers(answers)
    assert sorted(rank for block in blocks for rank in block.ranks) == sorted(answers)
    assert [block.ranks[0] for block in blocks] == sorted(block.ranks[0] for block in blocks)
    for block in blocks:
        assert block.text == answers[min(block.ranks)]


def test_numbers_that_all_differ_are_a_grid() -> None:
    grid = number_grid({rank: str(rank * 2) for rank in reversed(range(64))})
    assert grid is not None
    assert (grid.minimum, grid.maximum) == ("0", "126")
    assert grid.values == tuple((rank, str(rank * 2)) for rank in range(64))


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["1", "-2.5", "1e-3", "3."], ("-2.5", "3.")),
        (["nan", "1", "2", "3"], ("1", "3")),
        (["inf", "-inf", "0.5", ".25"], ("-inf", "inf")),
        (["9007199254740992", "9007199254740993", "1", "2"], ("1", "9007199254740993")),
        (["1", "2", "3", "4", "*** NameError", "[5]"], ("1", "4")),
        (["1" * 5000, "1", "2", "3"], ("1", "1" * 5000)),
    ],
)
def test_a_grid_has_its_ends(texts: list[str], ends: tuple[str, str]) -> None:
    grid = number_grid(dict(enumerate(texts)))
    assert grid is not None
    assert (grid.minimum, grid.maximum) == ends


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["1", "2", "3"],
        ["1", "2", "3", "1"],
        ["1", "2", "3", "1.0"],
        ["nan", "nan", "1", "2", "3"],
        ["True", "False", "None", "1", "2"],
        ["1 2", "2 3", "3 4", "4 5"],
        ["1_0", "2_0", "3_0", "4_0"],
        ["٣", "٤", "٥", "٦"],
    ],
)
def test_no_grid_of_other_answers(texts: list[str]) -> None:
    assert number_grid(dict(enumerate(texts))) is None


@given(st.dictionaries(st.integers(0, 50), st.integers().map(str) | st.floats().map(repr)))
def test_any_numbers_are_compared(answers: dict[int, str]) -> None:
    grid = number_grid(answers)
    assert grid is None or dict(grid.values) == answers


def test_long_digits_take_no_time() -> None:
    text = "1" * 200_000 + "x"
    assert number_grid(dict.fromkeys(range(20), text)) is None
    assert len(fold_answers(dict.fromkeys(range(20), " at 0x" + text))) == 1
