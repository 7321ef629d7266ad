"""Messages that a session passes on, and any order of what can happen."""

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
    output,
    read,
    request,
    said,
)
from tunnelkit.debug.dap import peek
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.session import DapSession

MIRROR = MappedRoots("/home/me/code", "/r/code", fold_case=False)
TERMINATED = event("terminated")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"3", b'{"type": 4}', b"\xff\xfe", b"{}"])
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
