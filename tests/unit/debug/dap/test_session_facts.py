"""Facts that a session shows, and corrections of its messages before the program begins."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.debug.dap_messages import (
    answer,
    read,
    request,
    said,
    said_by_vscode,
)
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.session import DapSession
from tunnelkit.debug.dap.session_facts import RANK_KEY, EndRequest

MIRROR = MappedRoots("/home/me/code", "/r/code", fold_case=False)


def mappings_sent(view: DapSession, body: bytes) -> tuple[Any, list[bytes]]:
    routed = view.from_editor(body)
    (sent,) = read(routed.to_adapter)
    assert sent["seq"] == 2 and sent["command"] == "attach"
    return sent["arguments"], routed.to_editor


def test_missing_mappings_are_added_silently() -> None:
    view = DapSession(MIRROR)
    arguments, notes = mappings_sent(view, request(2, "attach", justMyCode=False, pathMappings=[]))
    ours = [{"localRoot": "/home/me/code", "remoteRoot": "/r/code"}]
    assert arguments == {"justMyCode": False, "pathMappings": ours}
    assert notes == []
    assert view.facts.attach_arguments == arguments


def test_wrong_mappings_are_told_once() -> None:
    wrong = [{"localRoot": "${workspaceFolder}", "remoteRoot": "/old"}]
    arguments, notes = mappings_sent(DapSession(MIRROR), request(2, "attach", pathMappings=wrong))
    assert arguments["pathMappings"] == [{"localRoot": "/home/me/code", "remoteRoot": "/r/code"}]
    assert read(notes)[0]["body"]["category"] == "console"
    assert "/home/me/code -> /r/code" in read(notes)[0]["body"]["output"]


@pytest.mark.parametrize("mirror", [None, MIRROR])
def test_right_ones_pass_as_the_same_bytes(mirror: MappedRoots | None) -> None:
    right = [{"localRoot": "/home/me/code", "remoteRoot": "/r/code"}]
    body = request(2, "attach", pathMappings=right)
    assert DapSession(mirror).from_editor(body).to_adapter[0] is body


@pytest.mark.parametrize("write", [said, said_by_vscode, lambda m: said(dict(sorted(m.items())))])
def test_facts(write: Any) -> None:
    view = DapSession()

    def tell(seq: int, command: str, **arguments: Any) -> None:
        message = {"seq": seq, "type": "request", "command": command, "arguments": arguments}
        view.from_editor(write(message))

    tell(
        1,
        "initialize",
        clientID="vscode",
        clientName="Visual Studio Code",
        supportsStartDebuggingRequest=True,
    )
    assert (view.facts.client_id, view.facts.client_name) == ("vscode", "Visual Studio Code")
    assert view.facts.supports_start_debugging
    view.from_adapter([answer(1, "initialize")], 0.0)
    assert view._answered == {1}
    assert not view.facts.attached
    tell(2, "attach", name="tk", **{RANK_KEY: 3})
    assert view.facts.attached
    assert view.facts.attach is not None
    assert (view.facts.attach["seq"], view.facts.attach["command"]) == (2, "attach")
    assert view.facts.rank == 3 and view.facts.sub_process_id is None
    assert not view.facts.configuration_done
    tell(3, "configurationDone")
    assert view.facts.configuration_done
    tell(4, "disconnect", terminateDebuggee=False, restart=True)
    assert view.facts.goodbye == EndRequest("disconnect", False, True)
    assert not view.facts.over


def test_a_client_without_a_name_is_an_editor() -> None:
    view = DapSession()
    assert view.facts.client_name == "an editor"
    view.from_editor(request(1, "initialize", clientID="emacs"))
    assert view.facts.client_name == "emacs"


@pytest.mark.parametrize("command", ["disconnect", "terminate"])
def test_a_goodbye_before_attach_is_answered_here(command: str) -> None:
    view = DapSession()
    view.from_editor(request(1, "initialize"))
    routed = view.from_editor(request(2, command))
    assert routed.to_adapter == []
    (reply,) = read(routed.to_editor)
    assert (reply["type"], reply["request_seq"], reply["success"]) == ("response", 2, True)
    assert reply["command"] == command
    assert view.facts.over


def test_another_adapter_is_told_the_same_and_answers_only_what_is_open() -> None:
    view = DapSession()
    first, second = request(1, "initialize"), request(2, "evaluate", expression="1")
    for body in (first, second):
        view.from_editor(body)
    view.from_adapter([answer(1, "initialize")], 0.0)
    assert view.next_adapter() == [first, second]
    other = answer(2, "evaluate")
    assert view.from_adapter([answer(1, "initialize"), other], 0.0) == [other]


def test_a_launch_request_is_refused_with_the_way_out() -> None:
    view = DapSession()
    view.from_editor(request(1, "initialize"))
    routed = view.from_editor(request(2, "launch", program="x.py"))
    assert routed.to_adapter == []
    (refusal,) = read(routed.to_editor)
    assert (refusal["request_seq"], refusal["success"]) == (2, False)
    assert '"attach"' in refusal["message"]
    assert view.facts.over and not view.facts.attached
