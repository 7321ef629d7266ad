"""Text for pdb's port, split anywhere, and other protocols there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.pdb.client_text import ClientText, NotPdbClient

LINES = st.lists(st.text(st.characters(blacklist_categories=("Cc", "Cs")), max_size=20), min_size=1)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r\0"])


def fed(data: bytes, cuts: list[int]) -> bytes:
    """The text that is passed on of `data`, in pieces."""
    text, out, before = ClientText(), b"", 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        out += text.feed(data[before:cut])
        before = cut
    return out


@given(LINES, ENDS, st.lists(st.integers(0, 500), max_size=8))
def test_lines_pass_whole_with_the_line_ends_of_pdb(
    lines: list[str], end: bytes, cuts: list[int]
) -> None:
    # telnet's other line end can't be the first one: a control character is no text.
    first = b"\r\n" if end == b"\r\0" else end
    given_lines = [line.encode() for line in lines if " HTTP/" not in line]
    data = b"n" + first + b"".join(line + end for line in given_lines)
    assert fed(data, cuts) == b"n\n" + b"".join(line + b"\n" for line in given_lines)


@pytest.mark.parametrize(
    "opening",
    [b"GET / HTTP/1.1", b"POST /x?y HTTP/1.0", b"get / http/1.1", b"PRI * HTTP/2.0",
     b"X-Y a HTTP/3", b"\x16\x03\x01\x02\x00\x01", b"\x00", b"print(1)\x1b[2J", b"p" * 70_000],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_other_protocols_reach_nothing(opening: bytes, size: int) -> None:
    data = opening + b"\r\n\r\nimport os; os.abort()\n"
    text, passed = ClientText(), b""
    with pytest.raises(NotPdbClient):
        for at in range(0, len(data), size):
            passed += text.feed(data[at : at + size])
    assert passed == b"" and not text.begun


def test_a_line_that_only_speaks_of_http_is_text() -> None:
    assert ClientText().feed("p 'é GET / HTTP/1.1'\n".encode()) == "p 'é GET / HTTP/1.1'\n".encode()


def test_a_long_paste_passes_whole() -> None:
    paste = b"p 1\n" * 50_000
    assert ClientText().feed(paste) == paste
