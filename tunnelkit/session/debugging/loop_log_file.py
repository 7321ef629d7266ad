"""Output and events of loops as a text file."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tunnelkit.debug.dap.messages import Message
from tunnelkit.mux.loop_records import EVENT, LoopRecord
from tunnelkit.session.debugging.loop_messages import at, event_text
from tunnelkit.session.debugging.loop_positions import LoopPositions

_LOG_BYTES = 16 * 1024 * 1024


class LoopLogFile:
    """Output and events of loops as text, for `tk logs`; bounded by one rotation.

    Beside it lies what it has of each loop, for a session that adopts them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._positions = LoopPositions(path.with_name("loop-positions.json"))

    def begin(self, loop_id: int) -> None:
        """Forget what it has of an earlier loop of this id."""
        self._positions.begin(loop_id)

    def next_records(self, loop_id: int) -> dict[int, int]:
        """Return the numbers of the records, by part, that it does not have yet."""
        return self._positions.next_records(loop_id)

    def write(self, record: LoopRecord) -> None:
        """Append one record."""
        text = record.payload if record.kind != EVENT else _event_line(record.event())
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > _LOG_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
            with open(self._path, "ab") as file:
                file.write(text)

    def note(self, loop_id: int, record: LoopRecord) -> None:
        """Note that it has this record of a loop."""
        self._positions.note(loop_id, record.part, record.number)


def _event_line(event: Message) -> bytes:
    return f"[tk {at(event)}] {event_text(event)}\n".encode("utf-8", "replace")
