"""Single messages taken from a stream: any split, any choice, no byte lost or changed."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.dap.message_filter import MessageFilter
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.shared_connection import SharedConnection
from tunnelkit.mux.dap_framing import MAX_BODY_BYTES, DapError, DapReader, frame

bodies = st.lists(st.binary(min_size=1, max_size=60), max_size=8)


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(bodies, bodies, st.integers(1, 50), st.integers(0, 60))
def test_what_is_not_taken_goes_on_unchanged(
    passed: list[bytes], taken: list[bytes], size: int, longest: int
) -> None:
    sent = sorted(passed + taken)
    unwanted = set(taken) - set(passed)
    seen: list[bytes] = []

    def changed(body: bytes) -> bytes | None:
        seen.append(body)
        return None if body in unwanted else body

    stream = MessageFilter(lambda length: length <= longest, changed)
    out = b"".join(map(stream.feed, in_pieces(b"".join(map(frame, sent)), size)))
    short = [body for body in sent if len(body) <= longest]
    assert seen == short
    left = [body for body in sent if not (body in unwanted and len(body) <= longest)]
    assert DapReader().feed(out) == left
    assert stream.between_messages


@given(bodies, st.binary(max_size=60), st.integers(1, 50))
def test_the_filter_refuses_what_the_reader_refuses(
    sent: list[bytes], rest: bytes, size: int
) -> None:
    reader, stream = DapReader(), MessageFilter()
    for piece in in_pieces(b"".join(map(frame, sent)) + rest, size):
        try:
            reader.feed(piece)
        except DapError:
            with pytest.raises(ConnectionAbortedError):
                stream.feed(piece)
            return
        stream.feed(piece)


@pytest.mark.parametrize(
    "data", [b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), b"x" * 5000]
)
def test_a_length_is_refused_before_the_body(data: bytes) -> None:
    with pytest.raises(ConnectionAbortedError):
        MessageFilter().feed(data)


def test_a_message_that_nobody_holds_goes_on_before_it_is_whole() -> None:
    assert MessageFilter().feed(b"Content-Length: 9\r\n\r\n123") == b"Content-Length: 9\r\n\r\n123"


def response_to(request: bytes, result: str) -> bytes:
    """As pydevd answers."""
    seq = json.loads(DapReader().feed(request)[0])["seq"]
    return frame(
        json.dumps(
            {
                "seq": 5,
                "type": "response",
                "request_seq": seq,
                "success": True,
                "command": "evaluate",
                "body": {"result": result},
            }
        ).encode()
    )


OTHERS = [
    frame(b'{"seq": 1, "type": "event", "event": "output", "body": {"output": "x"}}'),
    frame(b'{"type": "response", "request_seq": 3, "success": true, "command": "threads"}'),
]


@given(st.integers(1, 80), st.permutations([0, 1, 2, 3]))
def test_answers_to_tk_are_its_own_and_the_adapters_stay_the_adapters(
    size: int, order: list[int]
) -> None:
    shared, answers = SharedConnection(), dict[str, Message]()
    asked = [shared.ask("evaluate", {}, partial(answers.__setitem__, name)) for name in ("a", "b")]
    wire = [*OTHERS, response_to(asked[0], "A"), response_to(asked[1], "B")]
    mixed = b"".join(wire[index] for index in order)
    out = b"".join(map(shared.from_debuggee, in_pieces(mixed, size)))
    assert out == b"".join(wire[index] for index in order if index < len(OTHERS))
    assert {name: one["body"] for name, one in answers.items()} == {
        "a": {"result": "A"},
        "b": {"result": "B"},
    }


@given(st.integers(1, 60))
def test_a_question_never_splits_a_message_of_the_adapter(size: int) -> None:
    shared = SharedConnection()
    wire = frame(b'{"seq": 1, "type": "request", "command": "next"}') * 3
    out, asked = b"", 0
    for piece in in_pieces(wire, size):
        out += shared.from_adapter(piece)
        out += shared.ask("evaluate", {}, lambda answer: None)
        asked += 1
    bodies = DapReader().feed(out)
    assert len(bodies) == 3 + asked
    assert [json.loads(body)["command"] for body in bodies].count("next") == 3


def test_an_answer_to_the_session_before_is_nobodys() -> None:
    old, new = SharedConnection(2**30), SharedConnection(2**31)
    late = response_to(old.ask("evaluate", {}, lambda answer: None), "late")
    asked: list[Message] = []
    new.ask("evaluate", {}, asked.append)
    assert new.from_debuggee(late + OTHERS[0]) == OTHERS[0]
    assert not asked


@given(
    st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 90),
    st.integers(0, 2000),
)
def test_an_adapter_that_comes_late_gets_whole_messages(
    sizes: list[tuple[int, bool]], size: int, joins_at: int
) -> None:
    """joins_at: the byte at which it comes; messages of over 200 bytes pass unread."""
    shared = SharedConnection()
    shared._debuggee._holds = lambda length: length <= 200
    shared.has_adapter = False
    wire = [
        frame(b'{"seq": 1, "type": "event", "event": "%s", "body": "%s"}' % (name, b"x" * count))
        for count, stops in sizes
        for name in (b"stopped" if stops else b"thread",)
    ]
    out, place = b"", 0
    joined_at: int | None = None
    for piece in in_pieces(b"".join(wire), size):
        if joined_at is None and place >= joins_at:
            joined_at = place
            shared.has_adapter = True
        out += shared.from_debuggee(piece)
        place += len(piece)
    expected, begins = [], 0
    for message in wire:
        ends = begins + len(message)
        body_begins = message.index(b"{") + begins
        if joined_at is not None:
            # A short one is passed on once it is whole, a long one once 4 KiB of it are there.
            short = ends - body_begins <= 200
            counts = _last_fed(ends if short else min(ends, body_begins + 4096), size)
            expected += [message] if counts >= joined_at else []
        begins = ends
    assert out == b"".join(expected)


def _last_fed(end: int, size: int) -> int:
    """Place at which the piece with the byte before `end` begins."""
    return (end - 1) // size * size


@pytest.mark.parametrize("size", [0xFFFFFF, 0xFFFFFF + 1, MAX_BODY_BYTES])
def test_the_adapter_gets_an_error_for_a_value_that_it_does_not_read(size: int) -> None:
    """It hears no answer any more after one that is too long for it."""
    shared = SharedConnection()
    head = b'{"type": "response", "request_seq": 7, "success": true, "command": "evaluate", '
    head += b'"body": {"result": "{'
    long = frame(head + b"x" * (size - len(head) - 3) + b'"}}')
    wire = OTHERS[0] + long + OTHERS[1]
    out = b"".join(map(shared.from_debuggee, in_pieces(wire, 1 << 16)))
    bodies = DapReader().feed(out)
    if size <= 0xFFFFFF:
        assert out == wire
        return
    assert max(map(len, bodies)) < 1000
    answers = [json.loads(body) for body in bodies]
    refused = next(one for one in answers if one.get("request_seq") == 7)
    assert (refused["success"], refused["command"]) == (False, "evaluate")
    assert "over 16 MB" in refused["message"] and "[:1000]" in refused["message"]
    assert [frame(body) for body in bodies if json.loads(body) != refused] == OTHERS


def test_a_stop_that_is_too_long_for_the_adapter_comes_cut() -> None:
    shared = SharedConnection()
    head = b'{"type": "event", "event": "stopped", "body": {"reason": "exception", "threadId": 5, '
    long = frame(head + b'"description": "' + b"x" * (17 << 20) + b'"}}')
    out = b"".join(map(shared.from_debuggee, in_pieces(long, 1 << 16)))
    [body] = DapReader().feed(out)
    stop = json.loads(body)
    assert (stop["event"], stop["body"]["threadId"]) == ("stopped", 5) and len(body) < 5000
    assert shared.is_stopped
