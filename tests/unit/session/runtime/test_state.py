"""States that may follow one another, and news that come too late."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.session.runtime.event_log import EventLog, Kind
from tunnelkit.session.runtime.state import FINAL, TRANSITIONS, SessionState, StateMachine


def machine() -> tuple[StateMachine, list[str]]:
    entered: list[str] = []

    def record(
        kind: Kind, text: str, *, state: str | None = None, error: TunnelkitError | None = None
    ) -> None:
        if kind == "state":
            entered.append(f"{state} {text}")

    return StateMachine(lambda: None, record), entered


@given(st.lists(st.tuples(st.sampled_from(SessionState), st.sampled_from(["", "x"]))))
def test_only_allowed_changes_are_made(wishes: list[tuple[SessionState, str]]) -> None:
    states, entered = machine()
    for state, detail in wishes:
        before, count = states.state, len(entered)
        states.become(state, detail)
        allowed = state is before or state in TRANSITIONS[before]
        assert states.state is (state if allowed else before)
        assert len(entered) - count == (allowed and (state, detail) != (before, "")) or allowed
    assert [line.split(" ")[0] for line in entered[-1:]] in ([], [states.state])


def test_every_state_can_be_left_for_the_end_and_none_comes_back() -> None:
    for state in SessionState:
        assert state is SessionState.CLOSING or SessionState.CLOSING in TRANSITIONS[state]
    for state in FINAL:
        assert TRANSITIONS[state] <= {SessionState.CLOSING}


def test_a_lost_link_does_not_revive_a_session_that_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    states, entered = machine()
    states.become(SessionState.CONNECTING)
    states.become(SessionState.ENDED, "job 5: reached its time limit")
    with caplog.at_level(logging.ERROR):
        states.become(SessionState.RECONNECTING, "the link is lost")
    assert states.state is SessionState.ENDED and states.is_final
    assert states.detail == "job 5: reached its time limit"
    assert not caplog.records and len(entered) == 2


def test_an_impossible_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    states, _ = machine()
    states.become(SessionState.READY)
    assert states.state is SessionState.NEW
    assert "ready can't follow new" in caplog.text


async def test_those_that_wait_hear_of_each_change() -> None:
    states, _ = machine()
    waiting = asyncio.create_task(states.wait_change())
    await asyncio.sleep(0)
    states.become(SessionState.CONNECTING)
    await waiting


def test_errors_are_kept_as_errors(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    states = StateMachine(lambda: None, events.add)
    refused = ConnectionFailed("no way", cause="refused", hint="wait", transient=True)
    states.become(SessionState.CONNECTING)
    states.become(SessionState.RECONNECTING, refused.one_line(), refused)
    states.check()
    failure = TunnelkitError("it broke", cause="a bug", hint="report it")
    states.fail(SessionState.FAILED, failure)
    assert [(one["kind"], one["state"], one["error"]) for one in events.recent] == [
        ("state", "connecting", None),
        ("state", "reconnecting", refused.to_json()),
        ("error", None, failure.to_json()),
        ("state", "failed", None),
    ]
    assert states.detail == failure.one_line()
    with pytest.raises(TunnelkitError) as caught:
        states.check()
    assert caught.value is failure
