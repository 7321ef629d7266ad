"""Parcels: cut out of any stream, exact, bounded."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.mux.rig import ends, soon
from tunnelkit.mirror.agent.channel import ParcelReader
from tunnelkit.mux import parcels
from tunnelkit.mux.parcels import ParcelCutter, ParcelError, encode

_names = st.binary(max_size=20).map(lambda name: name.decode("utf-8", "surrogateescape"))
_values = st.one_of(_names, st.integers(), st.booleans(), st.none(), st.lists(_names, max_size=3))
_parcels = st.lists(
    st.tuples(st.dictionaries(_names, _values, max_size=4), st.binary(max_size=50)), max_size=6
)


@given(_parcels, st.lists(st.integers(1, 30), min_size=1))
def test_round_trip(sent: list[tuple[dict[str, object], bytes]], sizes: list[int]) -> None:
    stream = b"".join(encode(*parcel) for parcel in sent)
    cutter, found = ParcelCutter(), []
    while stream:
        for size in sizes:
            found += cutter.feed(stream[:size])
            stream = stream[size:]
    assert found == sent


@given(st.binary(max_size=200))
def test_noise_is_cut_or_refused(noise: bytes) -> None:
    try:
        for header, data in ParcelCutter().feed(noise):
            assert isinstance(header, dict)
            assert isinstance(data, bytes)
    except ParcelError:
        pass


@pytest.mark.parametrize("text", [b"", b"[]", b"nope", b"\xff", b"[" * 100_000, b'{"a":1} x'])
def test_headers_that_are_none(text: bytes) -> None:
    with pytest.raises(ParcelError):
        ParcelCutter().feed(struct.pack("!II", len(text), 0) + text)


def test_too_large_is_judged_by_its_lengths() -> None:
    for lengths in ((parcels.MAX_HEADER_BYTES + 1, 0), (2, parcels.MAX_DATA_BYTES + 1)):
        with pytest.raises(ParcelError):
            ParcelCutter().feed(struct.pack("!II", *lengths))
    with pytest.raises(ParcelError):
        encode({}, b"x" * (parcels.MAX_DATA_BYTES + 1))
    assert encode({}, b"x" * parcels.MAX_DATA_BYTES)


async def test_over_a_channel() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({"type": "x"})
        channel.write_nowait(encode({"n": 1}) + encode({"n": 2}, b"data")[:9])
        channel.write_nowait(encode({"n": 2}, b"data")[9:])
        await soon(_until_open(pair))
        reader = ParcelReader(pair.server.channels[0])
        assert await soon(reader.read()) == ({"n": 1}, b"")
        assert await soon(reader.read()) == ({"n": 2}, b"data")
        channel.write_nowait(encode({"n": 3})[:5])
        channel.close()
        assert await soon(reader.read()) is None


async def _until_open(pair: object) -> None:
    from tests.unit.mux.rig import until

    await until(lambda: bool(pair.server.channels))  # type: ignore[attr-defined]
