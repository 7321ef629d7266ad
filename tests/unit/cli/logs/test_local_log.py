"""`tk logs` of this machine's logs, which the session rotates or cuts meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tunnelkit.cli.logs.local_log import LocalLog
from tunnelkit.mux.loop_records import STDOUT, LoopRecord
from tunnelkit.session.debugging import loop_log_file
from tunnelkit.session.debugging.loop_log_file import LoopLogFile
from tunnelkit.session.runtime import event_log
from tunnelkit.session.runtime.event_log import EventLog


class _Over(Exception):
    """All that was waited for has come."""


def _following(path: Path, until: bytes, write: Callable[[Callable[[bytes], None]], None]) -> bytes:
    """Return what `tk logs -f` shows while `write` runs, up to a text. `write` is called with what
    waits until a text was shown."""
    shown, more = bytearray(), threading.Condition()

    def take(data: bytes) -> None:
        with more:
            shown.extend(data)
            more.notify_all()
        if until in shown:
            raise _Over

    def wait_for(text: bytes) -> None:
        with more:
            assert more.wait_for(lambda: text in shown, 20), bytes(shown)

    def follow() -> None:
        with pytest.raises(_Over):
            LocalLog(path).show(100, take, follow=True)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    write(wait_for)
    thread.join(20)
    assert not thread.is_alive(), bytes(shown)
    return bytes(shown)


def _line(number: int) -> LoopRecord:
    return LoopRecord(STDOUT, number, b"line %04d\n" % number)


def test_a_rotation_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_log_file, "_LOG_BYTES", 1000)
    path = tmp_path / "loop.log"
    log = LoopLogFile(path)
    log.write(_line(0))

    def write(wait_for: Callable[[bytes], None]) -> None:
        wait_for(b"line 0000")
        for number in range(1, 150):
            log.write(_line(number))

    shown = _following(path, b"line 0149", write)
    assert path.with_name("loop.log.1").exists()
    assert shown.splitlines() == [b"line %04d" % number for number in range(150)]


def test_the_end_of_a_rotated_log_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "loop.log"
    path.with_name("loop.log.1").write_bytes(b"1\n2\n3\n")
    path.write_bytes(b"4\n5\n")
    found: list[bytes] = []
    for count in (1, 3, 9, 0):
        LocalLog(path).show(count, found.append, follow=False)
    assert found == [b"5\n", b"3\n4\n5\n", b"1\n2\n3\n4\n5\n"]
    assert LocalLog(path).last_bytes(6) == b"3\n4\n5\n"[-6:]


def test_events_that_are_cut_are_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MAX_BYTES", 2000)
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.add("message", "event 000")

    def write(wait_for: Callable[[bytes], None]) -> None:
        for number in range(1, 60):
            # An event that is cut before it was read is lost.
            wait_for(b"event %03d" % (number - 1))
            log.add("message", f"event {number:03}")

    shown = _following(path, b"event 059", write)
    texts = [json.loads(line)["text"] for line in shown.splitlines()]
    assert texts == [f"event {number:03}" for number in range(60)]
