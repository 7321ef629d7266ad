"""The records that the log of a killed session has, as the next one finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.session.debugging.loop_positions import LoopPositions


def test_the_next_session_knows_the_records_of_each_part(tmp_path: Path) -> None:
    path = tmp_path / "positions"
    before = LoopPositions(path)
    before.begin(1)
    before.begin(12)
    for part, number in ((0, 0), (0, 1), (1, 0), (0, 99), (1, 1), (0, 0)):
        before.note(1, part, number)
    before.note(12, 0, 5)
    after = LoopPositions(path)
    assert after.next_records(1) == {0: 100, 1: 2}
    assert after.next_records(12) == {0: 6}
    assert after.next_records(2) == {}


def test_a_new_loop_of_an_old_id_begins_from_nothing(tmp_path: Path) -> None:
    before = LoopPositions(tmp_path / "positions")
    before.note(1, 0, 1_000_000)
    before.note(2, 0, 3)
    LoopPositions(tmp_path / "positions").begin(1)
    after = LoopPositions(tmp_path / "positions")
    assert (after.next_records(1), after.next_records(2)) == ({}, {0: 4})


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"[[1, 2]]", b'[[1, "x", 3]]', b"\xff"])
def test_a_file_that_is_none_costs_only_what_it_told(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "positions").write_bytes(text)
    positions = LoopPositions(tmp_path / "positions")
    assert positions.next_records(1) == {}
    positions.note(1, 0, 0)
    assert LoopPositions(tmp_path / "positions").next_records(1) == {0: 1}


def test_without_a_place_to_write_it_does_without() -> None:
    positions = LoopPositions(Path("/nonexistent/positions"))
    positions.note(1, 0, 0)
    assert positions.next_records(1) == {0: 1}
