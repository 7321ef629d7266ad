"""Ranks that have not dialled in: nobody is named in doubt."""

from __future__ import annotations

import pytest

from tunnelkit.debug.ranks.absent import DialledIn, absent_ranks


def world(size: int, *ranks: int, over: bool = False) -> list[DialledIn]:
    return [DialledIn(rank, size, over) for rank in ranks]


@pytest.mark.parametrize(
    ("seen", "only", "absent"),
    [
        (world(4, 0, 1, 3), None, (2,)),
        (world(4, 0, 1, 2, 3), None, ()),
        # Of those to debug.
        (world(4, 0), [0], ()),
        (world(4, 0), [0, 2, 9], (2,)),
        # One that has ended was there.
        ([*world(4, 0, 1, 3), *world(4, 2, over=True)], None, ()),
        (world(4, 0, 1, 3, over=True), None, ()),
        ([], None, ()),
        # An elastic world shrinks, and is mixed meanwhile.
        ([*world(4, 0, 1, 2, 3, over=True), *world(3, 0, 1)], None, (2,)),
        ([*world(4, 0, 1), *world(3, 0)], None, ()),
        # Of two programs, one after another and at once.
        ([*world(2, 0, 1, over=True), *world(4, 0, 2, 3)], None, (1,)),
        ([*world(4, 0, 1, 2, 3, over=True), *world(4, 0)], None, ()),
        ([*world(2, 0, 1), *world(4, 3)], None, ()),
        # Sizes that no program has.
        (world(0, 0, 1), None, ()),
        (world(-1, 0), None, ()),
        (world(10**12, 0), None, ()),
    ],
)
def test_who_has_not_dialled_in(
    seen: list[DialledIn], only: list[int] | None, absent: tuple[int, ...]
) -> None:
    assert absent_ranks(seen, only) == absent
