"""Breakpoints in files that differ on the node: unverified, with the reason, and kept so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.debug.dap_messages import answer, attached, event, names, read, request
from tunnelkit.debug.dap.breakpoints import BreakpointCheck
from tunnelkit.debug.dap.path_mappings import MappedRoots
from tunnelkit.debug.dap.session import DapSession

FILE = "/home/me/code/train.py"
REASON = "train.py on node2 is older than here"


def mirrored() -> DapSession:
    return attached(DapSession(MappedRoots("/home/me/code", "/r/code", fold_case=False)))


def asks(seq: int, path: str = FILE, lines: tuple[int, ...] = (3, 5)) -> bytes:
    breakpoints = [{"line": line} for line in lines]
    return request(seq, "setBreakpoints", source={"path": path}, breakpoints=breakpoints)


def answers(seq: int, *numbers: int, verified: bool = True) -> bytes:
    listed = [
        {"verified": verified, "id": number, "source": {"path": FILE}, "line": 3 + number}
        for number in numbers
    ]
    return answer(seq, "setBreakpoints", {"breakpoints": listed})


def changed(number: int, verified: bool = True) -> bytes:
    told = {"verified": verified, "id": number, "source": {"path": FILE}, "line": 40}
    return event("breakpoint", {"reason": "changed", "breakpoint": told})


def told(bodies: list[bytes]) -> list[dict[str, Any]]:
    """What the bodies say of breakpoints."""
    found = []
    for message in read(bodies):
        if "breakpoints" in message.get("body", {}):
            found += message["body"]["breakpoints"]
        elif "breakpoint" in message.get("body", {}):
            found.append(message["body"]["breakpoint"])
    return found


def all_differ(bodies: list[bytes]) -> bool:
    return all(not one["verified"] and one["message"] == REASON for one in told(bodies))


def test_the_request_travels_and_the_response_waits_for_the_verdict() -> None:
    view = mirrored()
    question, response = asks(9), answers(9, 0, 1)
    assert view.from_editor(question).to_adapter == [question]
    assert view.take_checks() == [BreakpointCheck(9, FILE)]
    assert view.take_checks() == []
    assert view.from_adapter([response], 0.0) == []
    assert view.same(9) == [response]
    assert view.same(9) == []


def test_the_verdict_may_come_first() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    assert view.same(9) == []
    response = answers(9, 0)
    assert view.from_adapter([response], 0.0)[0] is response


def test_a_file_that_differs_has_no_verified_breakpoint() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    view.from_adapter([answers(9, 0, 1)], 0.0)
    out = view.differs(9, REASON)
    assert len(out) == 1 and read(out)[0]["request_seq"] == 9
    assert [one["line"] for one in told(out)] == [3, 4]
    assert all_differ(out)


def test_only_the_one_response_is_held() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    others = [answer(10, "threads"), event("thread", {"reason": "started", "threadId": 1})]
    other_file = answers(11, 7)
    view.from_editor(asks(11, "/usr/lib/python3/json/__init__.py"))
    assert view.from_adapter([answers(9, 0), *others, other_file], 0.0) == [*others, other_file]


@pytest.mark.parametrize("mirror", [None, MappedRoots("/home/me/other", "/r")])
def test_files_that_are_not_mirrored_are_not_asked_for(mirror: MappedRoots | None) -> None:
    view = attached(DapSession(mirror))
    view.from_editor(asks(9))
    assert view.take_checks() == []
    response = answers(9, 0)
    assert view.from_adapter([response], 0.0) == [response]


def test_no_breakpoints_no_question() -> None:
    view = mirrored()
    view.from_editor(asks(9, lines=()))
    assert view.take_checks() == []
    assert view.from_adapter([answers(9)], 0.0) == [answers(9)]


def test_a_later_event_does_not_turn_them_on_again() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    view.differs(9, REASON)
    view.from_adapter([answers(9, 0, 1, verified=False)], 0.0)
    out = view.from_adapter([changed(1)], 0.0)
    assert names(out) == ["breakpoint"] and all_differ(out)
    assert told(out)[0]["line"] == 40
    # What it says of others, or that they are off, is passed as it is.
    foreign, off = changed(77), changed(0, verified=False)
    assert view.from_adapter([foreign, off], 0.0) == [foreign, off]


def test_events_do_not_overtake_the_response_that_introduces_their_breakpoint() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    response, news, other = answers(9, 0, verified=False), changed(0), changed(5)
    assert view.from_adapter([response, news, other], 0.0) == [other]
    assert view.same(9) == [response, news]


def test_the_next_request_for_the_file_starts_anew() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    view.differs(9, REASON)
    view.from_adapter([answers(9, 0, 1)], 0.0)
    view.from_editor(asks(10))
    view.same(10)
    view.from_adapter([answers(10, 1, 2)], 0.0)
    news = changed(1)
    assert view.from_adapter([news], 0.0) == [news]
    assert view.differs(9, "late") == []


def test_an_older_verdict_does_not_hide_a_newer_one() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    view.from_editor(asks(10))
    view.from_adapter([answers(9, 0), answers(10, 1)], 0.0)
    assert all_differ(view.differs(10, REASON))
    assert view.same(9) == [answers(9, 0)]
    assert all_differ(view.from_adapter([changed(1)], 0.0))


def test_an_overdue_response_is_let_go_and_a_late_verdict_told_by_events() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    response = answers(9, 0, 1)
    assert view.from_adapter([response], 0.0) == []
    assert view.overdue(9) == [response]
    assert view.overdue(9) == []
    out = view.differs(9, REASON)
    assert names(out) == ["breakpoint", "breakpoint"] and all_differ(out)
    assert all_differ(view.from_adapter([changed(0)], 0.0))


def test_overdue_before_the_response() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    assert view.overdue(9) == []
    response = answers(9, 0)
    assert view.from_adapter([response], 0.0) == [response]
    assert view.same(9) == []


def test_a_file_that_is_the_same_again_gets_its_breakpoints_back() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    view.differs(9, REASON)
    view.from_adapter([answers(9, 0, 1, verified=False)], 0.0)
    view.from_adapter([changed(1)], 0.0)
    assert [one["verified"] for one in told(view.same(9))] == [False, True]
    assert all("message" not in one for one in told(view.same(9)))


@pytest.mark.parametrize("how", ["disconnect", "terminated", "adapter gone"])
def test_nothing_stays_held(how: str) -> None:
    view = mirrored()
    view.from_editor(asks(9))
    response = answers(9, 0)
    view.from_adapter([response], 0.0)
    if how == "disconnect":
        out = view.from_editor(request(12, "disconnect")).to_editor
    elif how == "terminated":
        out = view.from_adapter([event("terminated")], 0.0)
    else:
        out = view.adapter_gone()
    assert out[0] == response


def test_a_refused_request_is_passed_as_it_is() -> None:
    view = mirrored()
    view.from_editor(asks(9))
    view.differs(9, REASON)
    refused = answer(9, "setBreakpoints").replace(b"true", b"false")
    assert view.from_adapter([refused], 0.0) == [refused]
