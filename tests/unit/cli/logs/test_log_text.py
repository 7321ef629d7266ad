"""A log's text on a terminal, and the lines of one rank, from pieces split anywhere."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.logs.log_text import RankLines, TerminalText

_SGR = re.compile(r"\x1b\[[0-9;]*m")


def _pieces(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


def _shown(data: bytes, step: int = 1 << 20) -> str:
    text = TerminalText()
    parts = [text.feed(one) for one in _pieces(data, step)]
    return "".join([*parts, text.feed(b"", final=True)])


def _of_rank(data: bytes, rank: int, step: int = 1 << 20) -> bytes:
    lines = RankLines(rank)
    return b"".join([*map(lines.feed, _pieces(data, step)), lines.feed(b"", final=True)])


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.integers(1, 7))
def test_no_terminal_obeys_any_log(data: bytes, step: int) -> None:
    shown = _shown(data, step)
    assert shown == _shown(data)
    rest = _SGR.sub("", shown)
    assert all(char.isprintable() or char in "\n\t" for char in rest)


def test_what_is_kept_and_what_is_escaped() -> None:
    assert _shown(b"a\tb\n") == "a\tb\n"
    assert _shown(b"\x1b[31mred\x1b[0m\n") == "\x1b[31mred\x1b[0m\n\x1b[0m"
    assert _shown(b"\x1b]0;title\x07 \x1b[2J") == "\\x1b]0;title\\x07 \\x1b[2J"
    assert _shown(b"10%\r20%\r30%\r\n") == "10%\n20%\n30%\n"
    assert _shown("ü€".encode(), 1) == "ü€"
    assert _shown(b"\xff\n") == "\ufffd\n"


@given(st.binary(max_size=300), st.integers(1, 7))
def test_any_log_has_lines_of_a_rank_or_none(data: bytes, step: int) -> None:
    assert _of_rank(data, 1, step) == _of_rank(data, 1)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_the_lines_of_a_rank(step: int) -> None:
    log = (
        b"srun: job 7\n"
        b" 1:   indented\n"
        b"12: twelve\n"
        b"1: [rank1]: Traceback\n"
        b"[rank2]: two\n"
        b"[1,1]<stderr>:  File\n"
        b"1:\n"
        b"1 is no label\n"
        b"1: the end"
    )
    assert _of_rank(log, 1, step) == b"  indented\nTraceback\n  File\n\nthe end\n"
    assert _of_rank(log, 12, step) == b"twelve\n"
    assert _of_rank(log, 3, step) == b""
