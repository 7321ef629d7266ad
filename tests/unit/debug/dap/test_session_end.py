"""The end of a session: `exited` and `terminated`, once and in this order."""

from __future__ import annotations

import pytest

from tests.unit.debug.dap_messages import (
    answer,
    attached,
    event,
    names,
    output,
    read,
    request,
)
from tunnelkit.debug.dap.session import DapSession

TERMINATED = event("terminated")


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
