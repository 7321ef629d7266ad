"""The file of a session's events: bounded, private, readable after anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import AllocationError
from tunnelkit.session.runtime.event_log import MAX_BYTES, RECENT, EventLog, read_events


def test_events_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    failure = AllocationError("no node", cause="Priority", hint="wait", transient=True)
    log.add("state", "login", state="connecting")
    log.add("scheduler", "job 5: Priority")
    log.add("scheduler", "job 5: Priority")
    log.add("error", failure.one_line(), error=failure)
    found = read_events(path, 100)
    assert [(one["kind"], one["state"]) for one in found] == [
        ("state", "connecting"),
        ("scheduler", None),
        ("error", None),
    ]
    assert found[-1]["error"] == failure.to_json()
    assert found == list(log.recent)
    assert [one["kind"] for one in read_events(path, 1)] == ["error"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_stays_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for number in range(1200):
        log.add("message", f"{number} " + "x" * 500)
        assert path.stat().st_size <= MAX_BYTES
    found = read_events(path, 10_000)
    numbers = [int(one["text"].split()[0]) for one in found]
    assert numbers == list(range(numbers[0], 1200)) and len(numbers) > 100
    assert len(log.recent) == RECENT


def test_what_a_terminal_would_obey_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(path).add("route", "node\x1b[2J refuses")
    assert read_events(path, 1)[0]["text"] == "node\\x1b[2J refuses"


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "missing" / "events.jsonl")
    log.add("message", "hello")
    assert [one["text"] for one in log.recent] == ["hello"]
    assert read_events(tmp_path / "missing" / "events.jsonl", 5) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "events.jsonl").symlink_to(target)
    EventLog(tmp_path / "events.jsonl").add("message", "hello")
    assert not target.exists()


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_KEYS = st.sampled_from(["at", "kind", "text", "state", "error", "other"])


@given(st.lists(st.binary() | st.dictionaries(_KEYS, _JSON).map(lambda d: json.dumps(d).encode())))
def test_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "events-of-any-bytes"
    path.write_bytes(b"\n".join(lines))
    for event in read_events(path, 100):
        assert isinstance(event["at"], float) and isinstance(event["text"], str)
        json.dumps(event)
