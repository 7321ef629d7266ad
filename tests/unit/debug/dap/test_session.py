"""The view of one session: its end, its facts, child sessions, and what passes untouched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.debug.dap_messages import (
    answer,
    attached,
    event,
    names,
    output,
    read,
    request,
    said,
    said_by_vscode,
)
from tunnelkit.debug.dap import peek
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.session import DapSession
from tunnelkit.debug.dap.session_facts import RANK_KEY, Child, EndRequest
from tunnelkit.debug.debug_target import DebugTarget, TargetIdentity
from tunnelkit.debug.rank_sessions import _child

TERMINATED = event("terminated")


# -- the end --------------------------------------------------------------


def test_terminated_waits_for_the_exit_code() -> None:
    view = attached(DapSession())
    assert view.from_adapter([TERMINATED], 0.0) == []
    assert view.terminated and view.end_awaited
    out = view.ended(7)
    assert names(out) == ["exited", "terminated"]
    assert read(out)[0]["body"] == {"exitCode": 7}
    assert out[1] == TERMINATED
    assert not view.end_awaited
    assert view.ended(7) == view.give_up() == view.adapter_gone() == []


def test_the_exit_code_may_be_there_first() -> None:
    view = attached(DapSession())
    assert view.ended(0) == []
    assert names(view.from_adapter([TERMINATED], 0.0)) == ["exited", "terminated"]


@pytest.mark.parametrize(
    ("signal", "code", "text"),
    [
        ("SIGSEGV", 139, "killed by SIGSEGV"),
        ("SIGBUS", 135, "killed by SIGBUS"),
        (9, 137, "killed by SIGKILL"),
        ("signal 40", 168, "killed by signal 40"),
    ],
)
def test_a_signal_is_told(signal: str | int, code: int, text: str) -> None:
    view = attached(DapSession())
    view.from_adapter([TERMINATED], 0.0)
    out = view.ended(None, signal, "after 12 s")
    assert names(out) == ["output", "exited", "terminated"]
    line, ended, _ = read(out)
    assert line["body"] == {"category": "important", "output": f"{text} (after 12 s)\n"}
    assert ended["body"]["exitCode"] == code


def test_details_are_told_without_a_signal_too() -> None:
    view = attached(DapSession())
    view.ended(1, detail="after 3 s, peak RSS 2.1 GB")
    line = read(view.from_adapter([TERMINATED], 0.0))[0]
    assert line["body"] == {
        "category": "console",
        "output": "exited with code 1 (after 3 s, peak RSS 2.1 GB)\n",
    }


def test_who_gave_up_waiting_gets_no_code() -> None:
    view = attached(DapSession())
    view.from_adapter([TERMINATED], 0.0)
    assert view.give_up() == [TERMINATED]
    assert view.ended(3) == []
    early = attached(DapSession())
    assert early.give_up() == []
    assert early.from_adapter([TERMINATED], 0.0) == [TERMINATED]


def test_an_exited_of_the_adapter_is_the_only_one() -> None:
    view = attached(DapSession())
    exited = event("exited", {"exitCode": 4})
    assert view.from_adapter([exited, TERMINATED], 0.0) == [exited, TERMINATED]
    assert view.ended(4) == []
    late = attached(DapSession())
    late.from_adapter([TERMINATED], 0.0)
    late.ended(4)
    assert late.from_adapter([exited, TERMINATED], 0.0) == []


def test_a_session_that_never_attached_gets_its_terminated_as_it_is() -> None:
    view = DapSession()
    view.from_editor(request(1, "initialize"))
    view.ended(3)
    assert view.from_adapter([TERMINATED], 0.0) == [TERMINATED]


def test_nothing_is_held_after_disconnect() -> None:
    view = attached(DapSession())
    goodbye = request(9, "disconnect")
    assert view.from_editor(goodbye) == ([goodbye], [])
    assert view.from_adapter([TERMINATED, answer(9, "disconnect")], 0.0)[0] == TERMINATED
    held = attached(DapSession())
    held.from_adapter([TERMINATED], 0.0)
    assert held.from_editor(goodbye) == ([goodbye], [TERMINATED])


def test_the_end_that_the_person_asked_for_is_told_without_alarm() -> None:
    view = attached(DapSession())
    view.from_editor(request(9, "terminate"))
    assert view.from_adapter([TERMINATED], 0.0) == []
    assert names(view.ended(None, "SIGTERM")) == ["exited", "terminated"]


def test_the_end_of_a_child_process_is_the_adapters_to_tell() -> None:
    view = attached(DapSession(), subProcessId=77)
    assert view.from_adapter([TERMINATED], 0.0) == [TERMINATED]
    quick = attached(DapSession(hold_end=False))
    assert quick.from_adapter([TERMINATED], 0.0) == [TERMINATED]


def test_an_adapter_that_goes_without_a_word_leaves_no_session_open() -> None:
    view = attached(DapSession())
    assert view.adapter_gone() == []
    assert names(view.ended(None, "SIGKILL")) == ["output", "exited", "terminated"]
    assert view.adapter_gone() == []


def test_output_after_terminated_comes_before_it() -> None:
    view = attached(DapSession())
    last = output("last words\n")
    assert view.from_adapter([TERMINATED, last], 0.0) == [last]
    assert names(view.ended(0)) == ["exited", "terminated"]


# -- path mappings --------------------------------------------------------

MIRROR = MappedRoots("/home/me/code", "/r/code", fold_case=False)


def mappings_sent(view: DapSession, body: bytes) -> tuple[Any, list[bytes]]:
    routed = view.from_editor(body)
    (sent,) = read(routed.to_adapter)
    assert sent["seq"] == 2 and sent["command"] == "attach"
    return sent["arguments"], routed.to_editor


def test_missing_mappings_are_added_silently() -> None:
    view = DapSession(MIRROR)
    arguments, told = mappings_sent(view, request(2, "attach", justMyCode=False, pathMappings=[]))
    ours = [{"localRoot": "/home/me/code", "remoteRoot": "/r/code"}]
    assert arguments == {"justMyCode": False, "pathMappings": ours}
    assert told == []
    assert view.facts.attach_arguments == arguments


def test_wrong_mappings_are_told_once() -> None:
    wrong = [{"localRoot": "${workspaceFolder}", "remoteRoot": "/old"}]
    arguments, told = mappings_sent(DapSession(MIRROR), request(2, "attach", pathMappings=wrong))
    assert arguments["pathMappings"] == [{"localRoot": "/home/me/code", "remoteRoot": "/r/code"}]
    assert read(told)[0]["body"]["category"] == "console"
    assert "/home/me/code -> /r/code" in read(told)[0]["body"]["output"]


@pytest.mark.parametrize("mirror", [None, MIRROR])
def test_right_ones_pass_as_the_same_bytes(mirror: MappedRoots | None) -> None:
    right = [{"localRoot": "/home/me/code", "remoteRoot": "/r/code"}]
    body = request(2, "attach", pathMappings=right)
    assert DapSession(mirror).from_editor(body).to_adapter[0] is body


# -- facts ----------------------------------------------------------------


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


# -- child sessions -------------------------------------------------------


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
    (told,) = read([view.start_child(configuration)])
    assert (told["type"], told["event"]) == ("event", "debugpyAttach")
    assert told["body"] == {**configuration, "request": "attach"}


def test_children_that_the_adapter_announces_are_noted_and_passed() -> None:
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
    told = event("debugpyAttach", {**configuration, "subProcessId": 42})
    assert view.from_adapter([asked, told], 0.0) == [asked, told]
    assert view.facts.children == (Child(41, "Subprocess 41"), Child(42, "Subprocess 41"))


# -- what passes untouched ------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"3", b'{"type": 4}', b'{"type": "event"}', b"\xff\xfe", b"{}"]
)
def test_what_is_no_message_is_somebody_elses_to_judge(body: bytes) -> None:
    view = attached(DapSession(MIRROR))
    assert view.from_editor(body) == ([body], [])
    assert view.from_adapter([body], 0.0) == [body]


@pytest.mark.parametrize("arguments", [None, [], "x", {"source": 3}, {"subProcessId": "4"}])
@pytest.mark.parametrize("command", ["initialize", "attach", "setBreakpoints", "disconnect"])
def test_odd_arguments_harm_nobody(command: str, arguments: object) -> None:
    view = DapSession()
    body = said({"seq": 1, "type": "request", "command": command, "arguments": arguments})
    assert view.from_editor(body).to_adapter in ([body], [])


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=4,
)
_word = st.sampled_from(["next", "attach", "output", "stopped", "setBreakpoints", 'a"b', "é", ""])


@given(
    message=st.fixed_dictionaries(
        {"type": st.sampled_from(["request", "response", "event", "x"])},
        optional={
            "seq": st.integers(),
            "command": _word,
            "event": _word,
            "request_seq": st.integers(0, 10**6),
            "success": st.booleans(),
            "body": _json,
            "arguments": st.dictionaries(st.sampled_from(["command", "type", "seq"]), _word),
        },
    ),
    order=st.randoms(use_true_random=False),
    compact=st.booleans(),
)
def test_the_quick_look_never_differs_from_a_parse(message: Any, order: Any, compact: bool) -> None:
    keys = list(message)
    order.shuffle(keys)
    separators = (",", ":") if compact else (", ", ": ")
    body = json.dumps({key: message[key] for key in keys}, separators=separators).encode()
    expected = peek._slow(body)
    assert peek.peek(body) == expected
    # From an editor every message with a command first is a request, or has a request_seq.
    if message["type"] == "request" or "request_seq" in message:
        assert peek.peek_editor(body) == expected


_traffic = st.lists(
    st.sampled_from(
        [
            lambda n: ("down", answer(n, "variables", {"variables": [{"name": "x"}]}, seq=n)),
            lambda n: ("down", answer(n, "setBreakpoints", {"breakpoints": []}, seq=n)),
            lambda n: ("down", event("stopped", {"reason": "step", "threadId": 1}, seq=n)),
            lambda n: ("down", event("breakpoint", {"breakpoint": {"id": n}}, seq=n)),
            lambda n: ("down", output(f"{n}\n", "stdout" if n % 2 else "stderr")),
            lambda n: ("up", request(n, "next", threadId=1)),
            lambda n: ("up", request(n, "setBreakpoints", source={"path": "/x.py"})),
            lambda n: ("up", request(n, "pause", threadId=1)),
            lambda n: ("cut", b""),
        ]
    ),
    max_size=60,
)


@given(makers=_traffic)
def test_well_behaved_traffic_passes_unchanged_and_in_order(makers: list[Any]) -> None:
    view = attached(DapSession(MIRROR))
    batch: list[bytes] = []
    sent: list[bytes] = []
    arrived: list[bytes] = []
    for number, make in enumerate(makers, 10):
        # Numbers alternate, so no two neighbours of output are of one kind.
        way, body = make(number)
        if way == "up":
            assert view.from_editor(body).to_adapter[0] is body
        elif way == "down":
            if not (b'"output"' in body and batch and b'"output"' in batch[-1]):
                batch.append(body)
                sent.append(body)
        else:
            arrived += view.from_adapter(batch, number / 100)
            batch = []
    arrived += view.from_adapter(batch, 1e6)
    assert len(arrived) == len(sent)
    assert all(one is other for one, other in zip(arrived, sent, strict=True))
    assert view.due_s is None


_HAPPENINGS = (
    "set answer same differs overdue terminated exited ended give_up gone disconnect terminate "
    "flood stop due"
)
_happening = st.sampled_from(_HAPPENINGS.split())


@given(happenings=st.lists(_happening, max_size=30))
def test_whatever_happens_each_request_is_answered_once_and_the_end_told_once(
    happenings: list[str],
) -> None:
    view = attached(DapSession(MIRROR))
    out: list[bytes] = []
    asked: list[int] = []
    open_: list[int] = []
    now_s = 0.0
    for seq, what in enumerate(happenings, 10):
        now_s += 0.1
        if what == "set":
            body = request(
                seq, "setBreakpoints", source={"path": "/home/me/code/a.py"}, breakpoints=[{}]
            )
            assert view.from_editor(body).to_adapter == [body]
            asked.append(seq)
            open_.append(seq)
        elif what == "answer" and open_:
            listed = {"breakpoints": [{"id": seq, "verified": True}]}
            out += view.from_adapter([answer(open_.pop(0), "setBreakpoints", listed)], now_s)
        elif what in ("same", "overdue") and asked:
            out += getattr(view, what)(asked[seq % len(asked)])
        elif what == "differs" and asked:
            out += view.differs(asked[seq % len(asked)], "why")
        elif what == "terminated":
            out += view.from_adapter([TERMINATED], now_s)
        elif what == "exited":
            out += view.from_adapter([event("exited", {"exitCode": 1})], now_s)
        elif what == "ended":
            out += view.ended(None, "SIGKILL")
        elif what == "give_up":
            out += view.give_up()
        elif what == "gone":
            out += view.adapter_gone()
        elif what in ("disconnect", "terminate"):
            out += view.from_editor(request(seq, what)).to_editor
        elif what == "flood":
            out += view.from_adapter([output("x" * 60_000 + "\n")], now_s)
        elif what == "stop":
            out += view.from_adapter([event("stopped", {"reason": "step"}, seq=seq)], now_s)
        elif what == "due" and view.due_s is not None:
            now_s = max(now_s, view.due_s)
            out += view.on_time(now_s)
    for seq in open_:
        out += view.from_adapter([answer(seq, "setBreakpoints", {"breakpoints": []})], now_s)
    for seq in asked:
        out += view.overdue(seq)
    out += view.from_adapter([TERMINATED], now_s)
    out += view.give_up()
    messages = read(out)
    replies = [one["request_seq"] for one in messages if one["type"] == "response"]
    assert sorted(replies) == asked
    events = [one["event"] for one in messages if one["type"] == "event"]
    assert events.count("terminated") == 1
    assert events.count("exited") <= 1
    if "exited" in events:
        ours = [one for one in messages if one.get("event") == "exited" and one["seq"] > 2**30]
        assert not ours or events.index("exited") < events.index("terminated")
    if "ended" in happenings and "exited" not in happenings and "disconnect" not in happenings:
        given_up = "give_up" in happenings
        assert given_up or "exited" in events
    stops = [one["seq"] for one in messages if one.get("event") == "stopped"]
    assert stops == sorted(stops)
    assert view.due_s is None


def test_a_launch_request_is_refused_with_the_way_out() -> None:
    view = DapSession()
    view.from_editor(request(1, "initialize"))
    routed = view.from_editor(request(2, "launch", program="x.py"))
    assert routed.to_adapter == []
    (refusal,) = read(routed.to_editor)
    assert (refusal["request_seq"], refusal["success"]) == (2, False)
    assert '"attach"' in refusal["message"]
    assert view.facts.over and not view.facts.attached
