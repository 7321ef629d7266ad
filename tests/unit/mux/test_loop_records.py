"""Records: cut from any pieces, and nothing but RecordError for what is none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mux.loop_records import (
    EVENT,
    MAX_PAYLOAD_BYTES,
    STDERR,
    STDOUT,
    LoopRecord,
    RecordError,
    RecordReader,
)

RECORDS = st.builds(
    LoopRecord,
    st.sampled_from([EVENT, STDOUT, STDERR]),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=200),
    part=st.just(0),
)


@given(st.lists(RECORDS, max_size=8), st.integers(1, 64))
def test_any_split_gives_the_same_records(records: list[LoopRecord], piece: int) -> None:
    data = b"".join(record.encode() for record in records)
    reader = RecordReader()
    found: list[LoopRecord] = []
    for start in range(0, len(data), piece):
        found += reader.feed(data[start : start + piece])
    assert found == records


@pytest.mark.parametrize("length", [MAX_PAYLOAD_BYTES + 1, 2**32 - 1])
def test_a_record_that_is_too_long_is_refused_before_it_is_kept(length: int) -> None:
    with pytest.raises(RecordError):
        RecordReader().feed(struct.pack("!BQI", STDOUT, 0, length))


def test_a_record_of_no_known_kind_is_refused() -> None:
    with pytest.raises(RecordError):
        RecordReader().feed(struct.pack("!BQI", 77, 0, 1))


@given(st.binary(max_size=300))
def test_an_event_is_an_object_or_an_error(payload: bytes) -> None:
    try:
        assert isinstance(LoopRecord(EVENT, 0, payload).event(), dict)
    except RecordError:
        pass


def test_an_event_nested_without_end_is_an_error() -> None:
    with pytest.raises(RecordError):
        LoopRecord(EVENT, 0, b"[" * 200_000).event()
