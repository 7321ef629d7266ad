"""Exceptions of several clients: none removes another's, and each takes its own along."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.dap.exception_filters import ExceptionFilters
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.shared_connection import SharedConnection
from tunnelkit.mux.dap_framing import DapReader, frame

FILTERS = st.lists(st.sampled_from(["raised", "uncaught", "userUnhandled"]), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 2), FILTERS), max_size=8))
def test_the_debuggee_has_what_any_client_wants(moves: list[tuple[int, list[str]]]) -> None:
    union = ExceptionFilters()
    wanted: dict[int, set[str]] = {}
    for client, filters in moves:
        wanted[client] = set(filters)
        sent = union.set(client, {"filters": [*filters]})
        assert set(sent) == {"filters"}
        assert isinstance(sent["filters"], list)
        assert len(sent["filters"]) == len(set(sent["filters"]))
        assert set(sent["filters"]) == set().union(*wanted.values())
        assert [union.has(one) for one in wanted] == [bool(one) for one in wanted.values()]


def test_options_stay_with_those_who_have_them() -> None:
    union = ExceptionFilters()
    option: Message = {"path": [{"names": ["Python Exceptions"]}], "breakMode": "always"}
    union.set("editor", {"filters": [], "exceptionOptions": [option]})
    assert union.set("console", {"filters": ["uncaught"]}) == {
        "filters": ["uncaught"],
        "exceptionOptions": [option],
    }
    assert union.set("editor", {"filters": None}) == {"filters": ["uncaught"]}


def sent(data: bytes) -> list[tuple[str, object]]:
    found = [json.loads(body) for body in DapReader().feed(data)]
    return [(one["command"], one["arguments"].get("filters")) for one in found]


def adapter_says(shared: SharedConnection, command: str, **arguments: object) -> bytes:
    request = {"seq": 7, "type": "request", "command": command, "arguments": arguments}
    return shared.from_adapter(frame(json.dumps(request).encode()))


def test_an_editor_and_a_console_on_one_connection() -> None:
    shared = SharedConnection()
    shared.watched = True
    name = "setExceptionBreakpoints"
    assert sent(shared.set_filters("console", {"filters": ["raised"]}, print)) == [
        (name, ["raised"])
    ]
    assert sent(adapter_says(shared, name, filters=["uncaught"])) == [
        (name, ["raised", "uncaught"])
    ]
    # The one that leaves takes its own along.
    left = sent(adapter_says(shared, "disconnect", terminateDebuggee=False))
    assert (name, ["raised"]) in left
    assert sent(adapter_says(shared, name, filters=["uncaught"])) == [
        (name, ["raised", "uncaught"])
    ]
    assert sent(shared.drop_client("console")) == [(name, ["uncaught"])]
    shared.watched = False
    # The debuggee drops all by itself.
    adapter_says(shared, "disconnect")
    assert sent(shared.set_filters("console", {"filters": ["raised"]}, print)) == [
        (name, ["raised"])
    ]
