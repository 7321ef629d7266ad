"""DAP frames: any split, any size, nothing but DapError for garbage."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mux.dap_framing import (
    MAX_BODY_BYTES,
    DapError,
    DapReader,
    encode,
    refusal,
)

messages = st.lists(
    st.dictionaries(st.text(max_size=8), st.text(max_size=40) | st.integers(), max_size=4),
    max_size=6,
)


@given(messages, st.integers(1, 50))
def test_any_split_gives_the_same_messages(sent: list[dict[str, object]], size: int) -> None:
    wire = b"".join(encode(message) for message in sent)
    reader = DapReader()
    bodies = []
    for start in range(0, len(wire), size):
        bodies += reader.feed(wire[start : start + size])
    assert [json.loads(body) for body in bodies] == sent


def test_other_headers_and_case_are_fine() -> None:
    reader = DapReader()
    assert reader.feed(b"Content-Type: x\r\ncontent-length:  2 \r\n\r\n{}") == [b"{}"]


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 5000,
        b"A: b\r\n\r\n{}",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        # What a browser sends for a form or a fetch of any page.
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_no_dap_is_refused(data: bytes) -> None:
    with pytest.raises(DapError):
        DapReader().feed(data)


@given(st.binary(max_size=200))
def test_garbage_never_crashes(data: bytes) -> None:
    with contextlib.suppress(DapError):
        DapReader().feed(data)


@pytest.mark.parametrize("size", [1 << 16, (1 << 20) + 1])
def test_a_value_that_is_too_long_becomes_an_error_in_bounded_memory(size: int) -> None:
    reader = DapReader(refusal)
    length = MAX_BODY_BYTES + 3
    head = b'{"type": "response", "request_seq": 7, "success": true, "command": "evaluate", '
    data = b'Content-Length: %d\r\n\r\n%s"body": "' % (length, head)
    rest = length - len(head) - len(b'"body": "')
    bodies = reader.feed(encode({"a": 1}) + data)
    while rest:
        bodies += reader.feed(b"x" * min(size, rest))
        rest -= min(size, rest)
        assert len(reader._buffer) <= 4096
    bodies += reader.feed(encode({"b": 2}))
    first, refused, last = map(json.loads, bodies)
    assert (first, last) == ({"a": 1}, {"b": 2})
    assert (refused["request_seq"], refused["success"], refused["command"]) == (
        7,
        False,
        "evaluate",
    )


@pytest.mark.parametrize(
    "head", [b'{"type": "event", "event": "output", "body": {"request_seq": 7}}', b"x" * 5000]
)
def test_what_is_no_response_has_no_answer(head: bytes) -> None:
    reader = DapReader(refusal)
    with pytest.raises(DapError):
        reader.feed(b"Content-Length: %d\r\n\r\n%s" % (MAX_BODY_BYTES + 1, head))
        for _ in range(MAX_BODY_BYTES >> 20):
            reader.feed(bytes(1 << 20))
