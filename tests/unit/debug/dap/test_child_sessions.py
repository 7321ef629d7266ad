"""Child sessions: of ranks, and of processes that the debuggee starts."""

from __future__ import annotations

import pytest

from tests.unit.debug.dap_messages import (
    event,
    read,
    request,
    said,
)
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.session import DapSession
from tunnelkit.debug.dap.session_facts import RANK_KEY, Child
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.rank_sessions import _child
from tunnelkit.debug.target_identity import TargetIdentity

MIRROR = MappedRoots("/home/me/code", "/r/code", fold_case=False)


def with_children(supported: bool) -> DapSession:
    view = DapSession(MIRROR)
    view.from_editor(request(1, "initialize", supportsStartDebuggingRequest=supported))
    view.from_editor(
        request(
            2,
            "attach",
            name="tk: attach",
            type="debugpy",
            request="attach",
            preLaunchTask="tk: ready",
            justMyCode=True,
            connect={"host": "127.0.0.1", "port": 40056},
        )
    )
    return view


def test_a_child_session_is_asked_for_and_the_reply_stays_here() -> None:
    view = with_children(True)
    configuration = view.child_configuration("rank 3 · node2", **{RANK_KEY: 3})
    assert configuration == {
        "name": "rank 3 · node2",
        "type": "debugpy",
        "justMyCode": True,
        "connect": {"host": "127.0.0.1", "port": 40056},
        "pathMappings": [{"localRoot": "/home/me/code", "remoteRoot": "/r/code"}],
        RANK_KEY: 3,
    }
    (asked,) = read([view.start_child(configuration)])
    assert (asked["type"], asked["command"]) == ("request", "startDebugging")
    assert asked["arguments"] == {"request": "attach", "configuration": configuration}
    reply = {"type": "response", "seq": 0, "command": "startDebugging", "success": True}
    ours = said({**reply, "request_seq": asked["seq"]})
    theirs = said({**reply, "request_seq": 21})
    assert view.from_editor(ours) == ([], [])
    assert view.from_editor(theirs) == ([theirs], [])
    assert view.from_editor(ours) == ([ours], [])


def test_a_child_session_of_an_editor_that_knows_the_port_itself_is_told_it() -> None:
    """The snippets for nvim-dap and dape have the address beside the configuration. Emacs reads an
    empty object as nil, and gives null back; debugpy refused that, and the rank was lost."""
    view = DapSession()
    view.from_editor(request(1, "initialize", supportsStartDebuggingRequest=True))
    view.from_editor(request(2, "attach", name="tk", type="python"))
    rank = DebugTarget.__new__(DebugTarget)
    rank.who = TargetIdentity(9, "node1", 1, 2)
    (asked,) = read([_child(view, rank, 40056)])
    configuration = asked["arguments"]["configuration"]
    assert configuration["connect"] == {"host": "127.0.0.1", "port": 40056}
    assert configuration[RANK_KEY] == 1


def test_a_connect_that_is_null_counts_as_none() -> None:
    view = DapSession()
    view.from_editor(request(1, "initialize"))
    routed = view.from_editor(request(2, "attach", connect=None, name="tk"))
    (attach,) = read(routed.to_adapter)
    assert attach["arguments"] == {"name": "tk"}


def test_clients_without_start_debugging_get_debugpys_event() -> None:
    view = with_children(False)
    configuration = view.child_configuration("rank 1", **{RANK_KEY: 1})
    (announced,) = read([view.start_child(configuration)])
    assert (announced["type"], announced["event"]) == ("event", "debugpyAttach")
    assert announced["body"] == {**configuration, "request": "attach"}


def test_children_that_the_adapter_announces_get_their_parents_configuration() -> None:
    view = with_children(True)
    configuration = {"name": "Subprocess 41", "subProcessId": 41}
    asked = said(
        {
            "seq": 21,
            "type": "request",
            "command": "startDebugging",
            "arguments": {"request": "attach", "configuration": configuration},
        }
    )
    announced = event("debugpyAttach", {**configuration, "subProcessId": 42})
    by_request, by_event = read(view.from_adapter([asked, announced], 0.0))
    first = view.child_configuration("Subprocess 41", subProcessId=41)
    assert by_request["arguments"] == {"request": "attach", "configuration": first}
    second = view.child_configuration("Subprocess 42", subProcessId=42)
    assert by_event["body"] == {**second, "request": "attach"}
    assert view.facts.children == (Child(41, "Subprocess 41"), Child(42, "Subprocess 42"))


@pytest.mark.parametrize(
    "body",
    [
        {"type": "debugpy", "request": "launch", "python": ["/bin/sh", "-c", "id"]},
        {"request": "launch", "subProcessId": 7, "program": "/x", "preLaunchTask": "evil"},
        {"subProcessId": 7, "type": "node", "connect": {"host": "evil", "port": 1}},
        {"subProcessId": "7"},
        {"subProcessId": -1},
    ],
)
def test_no_configuration_of_the_debuggees_reaches_the_editor(body: dict[str, object]) -> None:
    """An event of the debuggee's own passes the adapter, and an editor starts what it says."""
    for name in ("debugpyAttach", "ptvsd_attach", "evil.command"):
        view = with_children(False)
        sent = read(view.from_adapter([event(name, body)], 0.0))
        own = view.child_configuration("Subprocess 7", subProcessId=7)
        wanted = [{**own, "request": "attach"}] if body.get("subProcessId") == 7 else []
        assert [one["body"] for one in sent] == (wanted if name == "debugpyAttach" else [])
