from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.wire.test_frames import pieces
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.frames import FrameDecoder
from tunnelkit.wire.handshake import MAGIC, MAX_NOISE_BYTES, Hello, HelloReader, Status

HELLOS = st.builds(
    Hello,
    st.sampled_from(list(Status)),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
)
NOISE = st.binary(max_size=300).filter(lambda noise: MAGIC not in noise + MAGIC[:-1])
HELLO = Hello(Status.FRESH, b"c" * 16, b"s" * 16, 7, 1000)


@given(NOISE, HELLOS, st.binary(max_size=50), st.lists(st.integers(0, 10_000), max_size=20))
@example(b"\x00\x00\xfftk\x00", HELLO, b"", list(range(100)))
@example(b"Last login: today\r\n", HELLO, MAGIC, [18, 20, 24])
def test_any_split_any_noise(noise: bytes, hello: Hello, rest: bytes, cuts: list[int]) -> None:
    reader = HelloReader()
    todo = pieces(noise + hello.encode() + rest, cuts)
    got = None
    while got is None:
        got = reader.feed(todo.pop(0))
    assert got == hello
    assert reader.noise == noise
    assert reader.rest + b"".join(todo) == rest


@pytest.mark.parametrize("step", [1 << 20, 4096, 1000])
@pytest.mark.parametrize("excess", [0, 1])
def test_the_noise_limit_is_the_same_however_it_is_split(step: int, excess: int) -> None:
    data = b"x" * (MAX_NOISE_BYTES + excess) + HELLO.encode()
    reader = HelloReader()

    def feed() -> list[Hello | None]:
        return [reader.feed(data[at : at + step]) for at in range(0, len(data), step)]

    if excess:
        with pytest.raises(ProtocolError, match="no tunnelkit agent"):
            feed()
    else:
        assert feed()[-1] == HELLO


def test_noise_without_end_is_given_up_and_kept_small() -> None:
    reader = HelloReader()
    with pytest.raises(ProtocolError, match="no tunnelkit agent"):
        for _ in range(100):
            reader.feed(b"motd " * 1000)
    assert len(reader.noise) < 2 * MAX_NOISE_BYTES


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_garbage(data: list[bytes]) -> None:
    reader = HelloReader()
    try:
        for piece in data:
            if reader.feed(piece) is not None:
                return
    except ProtocolError:
        pass


def test_another_major_version_is_told_before_the_rest_of_its_hello() -> None:
    with pytest.raises(ProtocolError, match=r"version 2\.5, this one 1\.0"):
        HelloReader().feed(MAGIC + struct.pack("!HH", 2, 5))


def test_a_higher_minor_version_is_accepted() -> None:
    data = HELLO.encode().replace(struct.pack("!HH", 1, 0), struct.pack("!HH", 1, 9), 1)
    assert HelloReader().feed(data) == HELLO


def test_an_unknown_status_is_refused() -> None:
    data = bytearray(HELLO.encode())
    data[len(MAGIC) + 4] = 99
    with pytest.raises(ProtocolError, match="status 99"):
        HelloReader().feed(bytes(data))


def test_a_second_hello_is_no_frame() -> None:
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(HELLO.encode())
