"""Lines of several nodes don't mix, and nothing of them is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.loop_agents.whole_lines import WholeLines
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
