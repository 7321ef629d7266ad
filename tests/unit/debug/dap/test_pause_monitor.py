"""A pause that stops nothing is told; every other one is not."""

from __future__ import annotations

from tests.unit.debug.dap_messages import answer, attached, event, read, request
from tunnelkit.debug.dap.session import DapSession


def paused(view: DapSession, seq: int = 20) -> int:
    view.from_editor(request(seq, "pause", threadId=1))
    asked = view.take_pause()
    assert asked is not None and view.take_pause() is None
    return asked


def test_a_pause_that_stops_nothing_is_told_once_with_the_process() -> None:
    view = attached(DapSession())
    view.from_adapter([event("process", {"name": "x", "systemProcessId": 4711})], 0.0)
    asked = paused(view)
    # The answer says nothing: pydevd gives it whatever the program does.
    view.from_adapter([answer(20, "pause")], 0.0)
    (told,) = read(view.not_paused(asked))
    assert told["body"]["category"] == "important"
    assert "tk run py-spy dump --pid 4711" in told["body"]["output"]
    assert view.not_paused(asked) == []


def test_a_stop_or_the_end_answers_it() -> None:
    for name in ("stopped", "terminated", "exited"):
        view = attached(DapSession())
        asked = paused(view)
        view.from_adapter([event(name, {"threadId": 1})], 0.0)
        assert view.not_paused(asked) == []


def test_only_the_last_of_two_is_spoken_about() -> None:
    view = attached(DapSession())
    first, second = paused(view), paused(view, 21)
    assert view.not_paused(first) == []
    assert len(view.not_paused(second)) == 1


def test_a_program_that_stands_needs_no_pause_until_it_runs_again() -> None:
    view = attached(DapSession())
    view.from_adapter([event("stopped", {"threadId": 1})], 0.0)
    view.from_editor(request(20, "pause", threadId=1))
    assert view.take_pause() is None
    view.from_editor(request(21, "continue", threadId=1))
    assert len(view.not_paused(paused(view, 22))) == 1
    view.from_adapter([event("stopped", {"threadId": 1}), event("continued")], 0.0)
    assert len(view.not_paused(paused(view, 23))) == 1


def test_without_a_process_event_the_pid_is_left_to_the_person() -> None:
    view = attached(DapSession())
    assert "--pid PID" in view.not_paused(paused(view))[0].decode()


def test_a_stop_tells_which_process_it_is_where_the_session_does_not() -> None:
    view = attached(DapSession())
    stop = event("stopped", {"reason": "breakpoint", "threadId": 1})
    assert view.from_adapter([stop], 0.0) == [stop]
    view.join("rank 0 · node1", hold_end=True)
    (told,) = read(view.from_adapter([stop], 0.0))
    assert told["body"] == {
        "reason": "breakpoint",
        "threadId": 1,
        "description": "rank 0 · node1: breakpoint",
    }
    raised = event("stopped", {"reason": "exception", "description": "1 / 0", "threadId": 1})
    (told,) = read(view.from_adapter([raised], 0.0))
    assert told["body"]["description"] == "rank 0 · node1: 1 / 0"
