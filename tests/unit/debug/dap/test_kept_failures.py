"""Uncaught exceptions beside those that an editor asks for, and an editor that leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.unit.hostile import JSON, objects
from tunnelkit.debug.dap.exception_filters import with_failures
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.shared_connection import FIRST_SEQ, SharedConnection
from tunnelkit.mux.dap_framing import DapReader, frame


def sent(data: bytes) -> list[Any]:
    return [json.loads(body) for body in DapReader().feed(data)]


def request(seq: int, command: str, **arguments: object) -> bytes:
    body = {"seq": seq, "type": "request", "command": command, "arguments": arguments}
    return frame(json.dumps(body).encode())


def modes(arguments: Message) -> list[tuple[list[str], str]]:
    options: Any = arguments["exceptionOptions"]
    return [(one["path"][-1]["names"], one["breakMode"]) for one in options]


def test_uncaught_exceptions_are_added_and_an_exit_is_none() -> None:
    assert modes(with_failures({})) == [(["Exception"], "unhandled")]
    assert modes(with_failures({"filters": ["raised"]})) == [
        (["Python Exceptions"], "always"),
        (["Exception"], "unhandled"),
    ]
    # This editor stops at SystemExit, too, as it always has.
    own: Message = {"filters": ["raised", "uncaught"]}
    assert with_failures(own) is own


@given(objects(["filters", "exceptionOptions"]))
def test_whatever_an_editor_asks_for_is_valid_afterwards(arguments: Message) -> None:
    json.dumps(with_failures(arguments))


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("watched", [True, False])
def test_an_editor_that_leaves_takes_no_failure_with_it(watched: bool, stopped: bool) -> None:
    shared = SharedConnection()
    shared.keeps, shared.watched = True, watched
    [asked] = sent(shared.from_adapter(request(3, "setExceptionBreakpoints", filters=["raised"])))
    assert asked["seq"] == 3 and len(modes(asked["arguments"])) == 2
    own = [{"line": 3}]
    shared.from_adapter(request(4, "setBreakpoints", source={"path": "/x.py"}, breakpoints=own))
    if stopped:
        event = {"seq": 1, "type": "event", "event": "stopped", "body": {"threadId": 1}}
        shared.from_debuggee(frame(json.dumps(event).encode()))
    left, *rest = sent(shared.from_adapter(request(5, "disconnect", terminateDebuggee=False)))
    assert (left["seq"], left["command"]) == (5, "threads")
    # It runs on where nobody else looks at it.
    goes = ["continue"] if stopped and not watched else []
    commands = [one["command"] for one in rest]
    assert commands == ["setBreakpoints", "setExceptionBreakpoints", *goes]
    assert len({one["seq"] for one in rest}) == len(rest)
    assert min(one["seq"] for one in rest) > FIRST_SEQ
    assert rest[0]["arguments"]["breakpoints"] == []
    assert modes(rest[1]["arguments"]) == [(["Exception"], "unhandled")]
    answer = {"seq": 9, "type": "response", "request_seq": 5, "success": True, "command": "threads"}
    [answered] = sent(shared.from_debuggee(frame(json.dumps(answer).encode())))
    assert (answered["command"], answered["request_seq"]) == ("disconnect", 5)


def test_without_post_mortem_an_editor_that_leaves_is_passed_on() -> None:
    shared = SharedConnection()
    for raw in (
        request(3, "setExceptionBreakpoints", filters=[]),
        request(4, "disconnect", terminateDebuggee=False),
    ):
        assert shared.from_adapter(raw) == raw
    shared.keeps = True
    raw = request(5, "disconnect", terminateDebuggee=True)
    assert shared.from_adapter(raw) == raw


@given(JSON)
def test_an_exit_code_is_for_consoles_and_not_for_editors(code: object) -> None:
    seen: list[Message] = []
    shared = SharedConnection(on_event=seen.append)
    event = {"seq": 1, "type": "event", "event": "exited", "body": {"exitCode": code}}
    assert shared.from_debuggee(frame(json.dumps(event).encode())) == b""
    assert [one["event"] for one in seen] == ["exited"]
