"""What `tk status` and `tk sync --watch` show of the mirror."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunnelkit.cli.views.status import lines, mirror_state
from tunnelkit.cli.views.sync_watch import BatchView

MIRROR: dict[str, Any] = {
    "state": "in_sync",
    "text": "in sync",
    "reason": None,
    "files": 12,
    "bytes": 3400,
    "pending": 0,
    "pending_paths": [],
    "progress": None,
}


def test_in_sync() -> None:
    assert mirror_state(MIRROR) == "in sync; 12 files (3.4 kB)"


def test_pending_names_the_first() -> None:
    pending = {**MIRROR, "state": "pending", "text": "5 pending", "pending": 5}
    pending["pending_paths"] = ["a", "b\n", "c", "d", "e"]
    assert mirror_state(pending) == "5 pending: a, 'b\\n', c and 2 more; 12 files (3.4 kB)"
    failed = {**pending, "text": "1 pending: can't be read", "reason": "can't be read"}
    assert mirror_state(failed) == "1 pending: can't be read; 12 files (3.4 kB)"


def test_the_first_copy() -> None:
    progress = {"files": 12, "files_total": 900, "bytes": 4e6, "bytes_total": 2.5e9, "eta_s": 75.2}
    sending = {**MIRROR, "state": "pending", "text": "900 pending", "progress": progress}
    assert mirror_state(sending) == "sending: 12 of 900 files, 4.0 MB of 2.5 GB, 0:01:15 left"
    progress["eta_s"] = None
    assert mirror_state(sending) == "sending: 12 of 900 files, 4.0 MB of 2.5 GB"
    stale = {**sending, "state": "stale", "text": "stale since 10:00:00: no link"}
    assert mirror_state(stale).startswith("stale since 10:00:00: no link; ")


def batch(**more: Any) -> dict[str, Any]:
    event = {"event": "batch", "time": 0.0, "files": 1, "bytes": 20, "deleted": 0}
    return {**event, "duration_s": 0.0124, "paths": ["a.py"], **more}


def state(word: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "event": "state",
        "time": 0.0,
        "state": word,
        "text": text,
        "files": 2,
        "bytes": 9,
    } | more


def test_a_batch_is_one_line() -> None:
    def line(**more: Any) -> str:
        return (BatchView().line(batch(**more)) or "")[10:]

    assert line() == "1 file, 20 B sent in 12 ms: a.py"
    many = ["a", "b\n", "c", "d"]
    assert line(files=7, deleted=2, paths=many) == (
        "7 files, 20 B sent, 2 deleted in 12 ms: a, 'b\\n', c, and 6 more"
    )
    assert line(files=0, deleted=1, paths=["\udcff"]) == "1 deleted in 12 ms: '\\udcff'"


def test_states_are_shown_around_troubles_only() -> None:
    view = BatchView()
    assert (view.line(state("in_sync", "in sync")) or "")[10:] == "in sync; 2 files (9 B) there"
    assert view.line(state("pending", "1 pending")) is None
    assert view.line(state("in_sync", "in sync")) is None
    assert (view.line(state("stale", "stale: gone")) or "")[10:] == "stale: gone"
    assert (view.line(state("in_sync", "in sync")) or "")[10:] == "in sync"
    assert view.line(state("pending", "1 pending")) is None


async def test_json_is_every_event(capsys: pytest.CaptureFixture[str]) -> None:
    view = BatchView(as_json=True)
    for event in (state("in_sync", "in sync"), state("pending", "1 pending"), batch()):
        await view.show(event)
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events == ["state", "state", "batch"]


def test_events_of_several_roots_are_told_apart() -> None:
    view = BatchView()

    def line(event: dict[str, Any]) -> str:
        return (view.line(event) or "")[10:]

    assert line(state("in_sync", "in sync", root="")) == "in sync; 2 files (9 B) there"
    assert line(state("in_sync", "in sync", root="../lib")) == (
        "../lib:  in sync; 2 files (9 B) there"
    )
    assert line(state("stale", "stale: no link", root="../lib")) == "../lib:  stale: no link"
    assert line(state("pending", "1 pending", root="")) == ""
    assert line(batch(root="../lib")) == "../lib:  1 file, 20 B sent in 12 ms: a.py"


def test_status_has_a_line_for_each_root() -> None:
    lib = {**MIRROR, "root": "../lib", "remote": "/far/lib", "warnings": ["big"]}
    lib |= {"state": "stale", "text": "stale since 10:00:00: no link"}
    own = {**MIRROR, "root": "", "remote": "/far/own", "warnings": []}
    status: dict[str, Any] = {"state": "ready", "detail": "", "project": "/p", "login": "login"}
    status |= {"job": None, "agent": None, "loops": [], "forwards": [], "debug_port": 1}
    shown = lines(status | {"mirror": own, "mirrors": [lib, own]})
    assert shown[3:6] == [
        "mirror   ../lib: stale since 10:00:00: no link; 12 files (3.4 kB) -> /far/lib",
        "  warning: big",
        "mirror   in sync; 12 files (3.4 kB) -> /far/own",
    ]
    assert not [one for one in lines(status | {"mirror": None, "mirrors": []}) if "mirror" in one]


def test_status_counts_the_pods_that_have_the_same_and_names_the_others() -> None:
    own = {**MIRROR, "root": "", "node": None, "remote": "/far/own", "warnings": []}
    status: dict[str, Any] = {"state": "ready", "detail": "", "project": "/p", "login": "login"}
    status |= {"job": None, "agent": None, "loops": [], "forwards": [], "debug_port": 1}
    stale = {**own, "node": "w-3", "state": "stale", "text": "stale since 10:00:00: full"}
    others = [{**own, "node": f"w-{number}"} for number in (1, 2)]
    shown = lines(status | {"mirror": own, "mirrors": [stale, own, *others]})
    assert [one for one in shown if one.startswith("mirror")] == [
        "mirror   w-3: stale since 10:00:00: full; 12 files (3.4 kB) -> /far/own",
        "mirror   in sync; 12 files (3.4 kB) -> /far/own, the same in 2 more pods",
    ]
    view = BatchView(as_json=False)
    event = state("stale", "stale: full", root="", node="w-3")
    assert (view.line(event) or "")[10:] == "w-3:  stale: full; 2 files (9 B) there"
