"""Lines of several nodes don't mix, and nothing of them is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.loop_agents.whole_lines import OneStream, WholeLines
from tunnelkit.mux.loop_records import STDERR, STDOUT, LoopRecord


@given(st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.text("ab\n\r", max_size=9))))
def test_pieces_come_as_whole_lines_in_their_order(pieces: list[tuple[int, str]]) -> None:
    lines, out = WholeLines(), {STDOUT: b"", STDERR: b""}
    for kind, text in pieces:
        for record in lines.feed(LoopRecord(kind, 7, text.encode())):
            assert record.payload.endswith((b"\n", b"\r"))
            out[record.kind] += record.payload
    for record in lines.flush():
        assert b"\n" not in record.payload
        out[record.kind] += record.payload
    assert not lines.has_rest and lines.flush() == []
    for kind, written in out.items():
        assert written == "".join(text for one, text in pieces if one == kind).encode()


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    lines = WholeLines()
    assert lines.feed(LoopRecord(STDOUT, 0, b"x" * 60_000)) == []
    assert lines.has_rest
    (record,) = lines.feed(LoopRecord(STDOUT, 1, b"y" * 60_000))
    assert len(record.payload) == 120_000 and not lines.has_rest


def joined(*pieces: tuple[int, str], kind: int = STDOUT) -> str:
    """Pieces of several nodes' output, as one stream."""
    stream = OneStream()
    records = [LoopRecord(kind, 0, text.encode(), part) for part, text in pieces]
    return b"".join(stream.feed(one).payload for one in records).decode()


def test_the_rest_of_a_line_follows_where_nobody_wrote_meanwhile() -> None:
    assert joined((0, "abc"), (0, "de"), (0, "f\n"), (1, "x\n")) == "abcdef\nx\n"
    assert joined((0, "\r 1 %"), (0, "\r 2 %\r")) == "\r 1 %\r 2 %\r"


def test_a_line_into_which_another_node_wrote_is_shown_whole_at_its_end() -> None:
    assert joined((0, "abc"), (1, "x\n"), (0, "def\n")) == "abc\nx\nabcdef\n"
    assert joined((0, "ab"), (1, "xy"), (0, "c\n"), (1, "z\n")) == "ab\nxy\nabc\nxyz\n"
    assert joined((0, "ab"), (1, "x\n"), (0, "c"), (0, "d\n"), (0, "e\n")) == "ab\nx\nabcd\ne\n"


def test_stdout_and_stderr_are_two_streams() -> None:
    stream = OneStream()
    assert stream.feed(LoopRecord(STDOUT, 0, b"abc", 0)).payload == b"abc"
    assert stream.feed(LoopRecord(STDERR, 0, b"x\n", 1)).payload == b"x\n"
    assert stream.feed(LoopRecord(STDOUT, 0, b"def\n", 0)).payload == b"def\n"


@given(st.lists(st.tuples(st.integers(0, 2), st.text("ab\n", min_size=1, max_size=5)), max_size=30))
def test_every_line_of_every_node_is_there(pieces: list[tuple[int, str]]) -> None:
    found = joined(*pieces, *((part, "\n") for part in range(3))).split("\n")
    for part in range(3):
        text = "".join(text for one, text in pieces if one == part)
        lines = iter(found)
        assert all(line in lines for line in text.split("\n"))
