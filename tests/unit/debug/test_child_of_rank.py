"""The rank of a child process's session: pods count their processes from 1, each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.debug.dap.attach_handshake import AttachRequest
from tunnelkit.debug.editor_dispatch import EditorDispatch


class Rank:
    """A rank whose adapter has announced these child processes."""

    def __init__(self, *children: int) -> None:
        self.children = children

    def announced(self, pid: int | None) -> bool:
        return pid in self.children


def goes_to(wish: AttachRequest, ranks: list[Rank]) -> Rank:
    generation: Any = SimpleNamespace(
        targets=ranks, primary=ranks[0], rank=lambda number: ranks[number], only=None, world_size=0
    )
    found = object.__new__(EditorDispatch)._wanted(generation, wish)
    assert isinstance(found, Rank)
    return found


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_childs_session_goes_to_its_own_rank(number: int) -> None:
    ranks = [Rank(7), Rank(7), Rank(7)]
    at_its_port = AttachRequest(None, 7).for_rank(number)
    for wish in (AttachRequest(number, 7), at_its_port):
        assert goes_to(wish, ranks) is ranks[number]


def test_a_session_without_a_rank_goes_to_the_primary_or_to_who_announced_it() -> None:
    ranks = [Rank(7), Rank(7, 8)]
    assert goes_to(AttachRequest(None, 7), ranks) is ranks[0]
    assert goes_to(AttachRequest(None, 8), ranks) is ranks[1]
    assert goes_to(AttachRequest(None, 9), ranks) is ranks[0]
