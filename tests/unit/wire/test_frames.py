from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.pair import frame
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.frames import (
    HEADER,
    MAX_PAYLOAD_BYTES,
    PAYLOAD_LENGTHS,
    Frame,
    FrameDecoder,
    Kind,
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    kind = draw(st.sampled_from(list(Kind)))
    lengths = PAYLOAD_LENGTHS[kind]
    length = draw(st.integers(lengths.start, min(lengths.stop - 1, lengths.start + 300)))
    payload = draw(st.binary(min_size=length, max_size=length))
    return Frame(kind, draw(U32), draw(U64), payload)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    marks = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(marks)]


@given(st.lists(frames(), max_size=8), st.lists(st.integers(0, 10_000), max_size=30))
def test_any_split_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(frame(*one) for one in sent)
    decoder = FrameDecoder()
    got = [one for piece in pieces(data, cuts) for one in decoder.feed(piece)]
    assert got == sent


@given(st.lists(frames(), min_size=1, max_size=4))
def test_byte_by_byte(sent: list[Frame]) -> None:
    decoder = FrameDecoder()
    data = b"".join(frame(*one) for one in sent)
    got = [one for byte in data for one in decoder.feed(bytes([byte]))]
    assert got == sent


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_is_a_protocol_error_or_waits(data: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for piece in data:
            decoder.feed(piece)
    except ProtocolError:
        pass


@given(kind=st.integers(0, 255), length=U32, split=st.booleans())
def test_only_lengths_that_a_kind_may_have(kind: int, length: int, split: bool) -> None:
    """The header alone decides, before any payload is waited for."""
    head = HEADER.pack(kind, 1, 1, length)
    allowed = kind in list(Kind) and length in PAYLOAD_LENGTHS[Kind(kind)]
    decoder = FrameDecoder()
    try:
        for piece in pieces(head, [5] if split else []):
            decoder.feed(piece)
        accepted = True
    except ProtocolError:
        accepted = False
    assert accepted == allowed


@pytest.mark.parametrize("kind", list(Kind))
def test_length_limits(kind: Kind) -> None:
    lengths = PAYLOAD_LENGTHS[kind]
    for length in (lengths.start, lengths.stop - 1):
        (got,) = FrameDecoder().feed(frame(kind, 1, 2, bytes(length)))
        assert got == (kind, 1, 2, bytes(length))
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(frame(kind, 1, 2, bytes(lengths.stop)))


def test_decoder_keeps_less_than_one_frame() -> None:
    decoder = FrameDecoder()
    data = frame(Kind.CLOSE, 1, 1, bytes(MAX_PAYLOAD_BYTES)) * 20
    for start in range(0, len(data), 100_000):
        decoder.feed(data[start : start + 100_000])
        assert len(decoder._partial) < HEADER.size + MAX_PAYLOAD_BYTES
