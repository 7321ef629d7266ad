"""Frames of the remote script, from bytes that nobody vouches for."""

from __future__ import annotations

import base64
import contextlib
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.session.logs.remote_log import Frame, FrameError, FrameKind, FrameReader

_PIECES = st.sampled_from(
    [
        b"tk-1 ", b"data gzip\n", b"data plain\n", b"end 5\n", b"end\n", b"file 1:2 0 5\n",
        b"idle\n", b"over\n", b"truncated\n", b"aGVsbG8=\n", b"\n", b"greeting\n", b"\xff\0",
        base64.encodebytes(gzip.compress(b"hello")),
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=30).map(b"".join), st.integers(1, 7))
def test_any_bytes_are_frames_or_an_error(data: bytes, step: int) -> None:
    reader = FrameReader("tk-1")
    with contextlib.suppress(FrameError):
        for at in range(0, len(data), step):
            for frame in reader.feed(data[at : at + step]):
                assert isinstance(frame.kind, FrameKind)


@given(st.binary(max_size=3000), st.integers(1, 50), st.sampled_from(["plain", "gzip"]))
def test_a_piece_comes_back_however_it_was_split(data: bytes, step: int, codec: str) -> None:
    packed = gzip.compress(data) if codec == "gzip" else data
    sent = b"Welcome!\ntk-1 file 1:2 0 %d\ntk-1 data %s\n%stk-1 end %d\ntk-1 over\n" % (
        len(data),
        codec.encode(),
        base64.encodebytes(packed),
        len(data),
    )
    reader = FrameReader("tk-1")
    frames = [
        frame for at in range(0, len(sent), step) for frame in reader.feed(sent[at : at + step])
    ]
    assert frames == [
        Frame(FrameKind.FILE, identity="1:2", offset=0, size=len(data)),
        Frame(FrameKind.DATA, data),
        Frame(FrameKind.OVER),
    ]


def test_a_piece_that_unpacks_to_more_than_it_says_is_refused() -> None:
    bomb = base64.encodebytes(gzip.compress(b"\0" * 50_000_000))
    with pytest.raises(FrameError, match="larger"):
        list(FrameReader("tk-1").feed(b"tk-1 data gzip\n" + bomb + b"tk-1 end 10\n"))


def test_a_piece_that_the_file_no_longer_had_is_not_whole() -> None:
    sent = b"tk-1 data plain\n" + base64.encodebytes(b"abc") + b"tk-1 end 10\n"
    (frame,) = FrameReader("tk-1").feed(sent)
    assert (frame.data, frame.whole) == (b"abc", False)


def test_endless_lines_are_refused() -> None:
    reader = FrameReader("tk-1")
    list(reader.feed(b"tk-1 idle\n"))
    with pytest.raises(FrameError, match="too long"):
        list(reader.feed(b"x" * 10_000))
    reader = FrameReader("tk-1")
    with pytest.raises(FrameError, match="too large"):
        list(reader.feed(b"tk-1 data plain\n" + b"AAAA\n" * 500_000))
