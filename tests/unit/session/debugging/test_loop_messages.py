"""What `tk logs` says of a loop's events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.session.debugging.loop_log_file import LoopLogFile
from tunnelkit.session.debugging.loop_messages import event_text


def test_the_log_is_written_in_words(tmp_path: Path) -> None:
    log = LoopLogFile(tmp_path / "loop.log")
    end = {"code": 0, "signal": None, "duration_s": 0.7310408150001422, "why": "ended"}
    log.write(LoopRecord(EVENT, 0, event_payload("armed", generation=75)))
    log.write(
        LoopRecord(EVENT, 1, event_payload("ended", peak_rss_bytes=2**24, generation=75, **end))
    )
    first, second = (tmp_path / "loop.log").read_text().splitlines()
    assert first.endswith("] run 75 · armed: press F5")
    assert second.endswith("] run 75 · ended: exit code 0 after 0.7 s, peak 16 MiB")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"event": "attached", "client": "naive", "generation": 2}, "run 2 · attached: naive"),
        ({"event": "imported", "module": "x"}, "imported module=x"),  # another version's
        ({"event": "new-thing", "a": 1}, "new-thing a=1"),
    ],
)
def test_what_has_no_words_is_shown_as_it_came(event: dict[str, Any], text: str) -> None:
    assert event_text(event) == text
