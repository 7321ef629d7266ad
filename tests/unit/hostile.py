"""What a hostile peer may send, as strategies: JSON of any shape, frames that are nearly right."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from tunnelkit.wire.frames import HEADER, Kind

_ODD = st.sampled_from(
    [0, -1, 1, 2**31, 2**63, 10**400, 1e308, float("inf"), float("nan"), "", 1.5]
)
#: Whatever json.loads may return.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | _ODD,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def objects(keys: Iterable[str], values: st.SearchStrategy[Any] = JSON) -> st.SearchStrategy[Any]:
    """Objects that have some of these keys, and now and then others."""
    return st.dictionaries(st.sampled_from(list(keys)) | st.text(max_size=4), values, max_size=6)


def message(value: Any) -> bytes:
    """A message of mux/rpc.py."""
    payload = json.dumps(value).encode()
    return struct.pack("!I", len(payload)) + payload


@st.composite
def frames(
    draw: st.DrawFn, headers: st.SearchStrategy[Any], data: st.SearchStrategy[bytes]
) -> bytes:
    """A stream of frames, most of them with the number and a payload that they should have."""
    stream, number = b"", 0
    for kind in draw(st.lists(st.sampled_from(list(Kind)), max_size=25)):
        channel = draw(st.integers(0, 9) | st.integers(0, 2**32 - 1))
        if kind in (Kind.OPEN, Kind.CLOSE):
            payload = json.dumps(draw(headers)).encode()
        elif kind is Kind.DATA:
            payload = draw(data)
        elif kind is Kind.CREDIT:
            payload = struct.pack("!I", draw(st.integers(0, 2**32 - 1)))
        elif kind in (Kind.EOF, Kind.ACK):
            payload = b""
        else:
            payload = draw(st.binary(max_size=64))
        seq = number + 1 if kind < Kind.ACK else draw(st.integers(0, 3))
        if draw(st.integers(0, 19)) == 0:
            seq = draw(st.integers(0, 2**64 - 1))
        number = max(number, seq) if kind < Kind.ACK and seq == number + 1 else number
        stream += HEADER.pack(kind, channel, seq, len(payload)) + payload
    return stream + draw(st.binary(max_size=20))
