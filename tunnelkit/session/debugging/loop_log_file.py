"""Output and events of loops as a text file."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tunnelkit.debug.dap.messages import Message
from tunnelkit.mux.loop_records import EVENT, LoopRecord
from tunnelkit.session.debugging.loop_messages import at, event_text

_LOG_BYTES = 16 * 1024 * 1024


class LoopLogFile:
    """Output and events of loops as text, for `tk logs`; bounded by one rotation."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, record: LoopRecord) -> None:
        """Append one record."""
        text = record.payload if record.kind != EVENT else _event_line(record.event())
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > _LOG_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
            with open(self._path, "ab") as file:
                file.write(text)


def _event_line(event: Message) -> bytes:
    return f"[tk {at(event)}] {event_text(event)}\n".encode("utf-8", "replace")
