"""A debuggee that sends anything: what is kept of it has limits, and nothing raises but the end."""

from __future__ import annotations

import contextlib
import json

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.hostile import JSON, objects
from tunnelkit.debug.dap.messages import Message, section
from tunnelkit.debug.dap.shared_connection import FIRST_SEQ, SharedConnection
from tunnelkit.mux.dap_framing import frame

_NAMES = ("stopped", "continued", "output", "terminated", "exited", "initialized")
_BODIES = objects(["threadId", "allThreadsContinued", "breakpoints", "output"])
EVENTS = st.builds(
    lambda name, body: {"seq": 1, "type": "event", "event": name, "body": body},
    st.sampled_from(_NAMES) | JSON,
    _BODIES | JSON,
)
RESPONSES = st.builds(
    lambda seq, command, body: {
        "type": "response",
        "request_seq": seq,
        "command": command,
        "success": True,
        "body": body,
    },
    st.integers(0, 3) | st.integers(FIRST_SEQ, FIRST_SEQ + 3) | JSON,
    st.sampled_from(["setBreakpoints", "configurationDone", "evaluate"]) | JSON,
    _BODIES | JSON,
)
REQUESTS = st.builds(
    lambda seq, command, arguments: {
        "seq": seq,
        "type": "request",
        "command": command,
        "arguments": arguments,
    },
    st.integers(0, 3) | JSON,
    st.sampled_from(["setBreakpoints", "configurationDone", "disconnect", "next"]) | JSON,
    objects(["source", "breakpoints", "terminateDebuggee"]) | JSON,
)


@given(
    st.lists(EVENTS | RESPONSES | JSON, max_size=8),
    st.lists(REQUESTS | JSON, max_size=4),
    st.booleans(),
    st.binary(max_size=40),
)
def test_whatever_both_sides_send_is_passed_on_or_ends_the_connection(
    from_debuggee: list[object], from_adapter: list[object], watched: bool, rest: bytes
) -> None:
    seen: list[Message] = []
    shared = SharedConnection(on_event=seen.append)
    shared.watched = watched
    shared.ask("evaluate", {}, seen.append)
    shared.set_breakpoints("console", "/x.py", [{"line": 3}], seen.append)
    with contextlib.suppress(ConnectionAbortedError):
        for message in from_adapter:
            shared.from_adapter(frame(json.dumps(message).encode()))
        for message in from_debuggee:
            shared.from_debuggee(frame(json.dumps(message).encode()))
        shared.from_debuggee(rest)
    assert all(isinstance(one, dict) for one in seen)


@given(st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000]), st.booleans())
@example(b"\xff" * 100, True)
def test_what_is_no_message_passes_unread(body: bytes, watched: bool) -> None:
    shared = SharedConnection()
    shared.watched = watched
    assert shared.from_debuggee(frame(body)) == frame(body)


def test_stops_that_are_kept_are_few_and_small() -> None:
    shared = SharedConnection()
    for thread in range(5000):
        event = {"seq": 1, "type": "event", "event": "stopped", "body": {"threadId": thread}}
        shared.from_debuggee(frame(json.dumps(event).encode()))
    assert len(shared.stops) == 256
    huge = {"threadId": 1, "text": "x" * 100_000}
    other = SharedConnection()
    event = {"seq": 1, "type": "event", "event": "stopped", "body": huge}
    other.from_debuggee(frame(json.dumps(event).encode()))
    assert len(json.dumps(other.stops)) < 5_000


def test_a_stop_at_an_exception_with_a_text_of_megabytes_is_known() -> None:
    for size in (100_000, 2_000_000):
        seen: list[Message] = []
        shared = SharedConnection(on_event=seen.append)
        said = 'the "threadId": 9 of \x1b[2J ' + "é" * size
        body = {"reason": "exception", "description": said, "threadId": 7, "text": "ValueError"}
        message = {"type": "event", "event": "stopped", "body": body, "seq": 4}
        raw = frame(json.dumps(message).encode())
        passed = b"".join(
            shared.from_debuggee(raw[at : at + 70_000]) for at in range(0, len(raw), 70_000)
        )
        # The editor gets what the debuggee has sent.
        assert passed == raw
        [stop] = shared.stops
        assert seen == [stop] and len(json.dumps(stop)) < 20_000
        kept = section(stop, "body")
        assert (kept["threadId"], kept["reason"], kept["text"]) == (7, "exception", "ValueError")
        assert said.startswith(str(kept["description"])) and kept["description"]


def test_an_answer_of_megabytes_to_tk_counts_as_a_failure_and_stays_here() -> None:
    answers: list[Message] = []
    shared = SharedConnection()
    shared.ask("exceptionInfo", {}, answers.append)
    for own in (True, False):
        answer = {
            "type": "response",
            "request_seq": FIRST_SEQ + 1 if own else 3,
            "success": True,
            "command": "exceptionInfo",
            "body": {"description": "x" * 2_000_000},
        }
        raw = frame(json.dumps(answer).encode())
        assert shared.from_debuggee(raw) == (b"" if own else raw)
    assert [one["success"] for one in answers] == [False]


# Small pieces of a long message take long, and only one example has pieces of a byte.
@given(st.binary(max_size=5_000), st.integers(1_000, 400_000), st.booleans())
@example(b'{"type": "event", "event": "stopped", "body": {"threadId": 1', 64, False)
@example(b'{"type": "response", "request_seq": 1073741825, ', 1, True)
@example(b'{"type": "event", "event": "stopped", "description": "' + b"\\" * 4_000, 1, False)
def test_long_messages_of_any_form_pass_or_are_dropped_whole(
    head: bytes, piece: int, event: bool
) -> None:
    shared = SharedConnection()
    shared.ask("evaluate", {}, lambda message: None)
    start = b'{"type": "event", "event": "stopped", "body": {"reason": "' if event else b""
    raw = frame((start + head).ljust((1 << 20) + 9, b"x"))
    after = frame(b'{"seq": 1, "type": "event", "event": "thread"}')
    fed = raw + after
    passed = b"".join(
        shared.from_debuggee(fed[at : at + piece]) for at in range(0, len(fed), piece)
    )
    assert passed in (fed, after)
    assert len(json.dumps(shared.stops)) < 20_000
