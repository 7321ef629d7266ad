"""The events of a session, for people and for diagnosis: a bounded file of JSON lines.

`tk logs --session --json`, `tk status --json` and `tk bugreport` read it, and it outlives the
session's process.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Literal, Protocol, TypedDict

from tunnelkit.errors import ErrorInfo, TunnelkitError
from tunnelkit.text_format import shown

#: state: the session entered a state. message: a text for the user. error: a failure.
#: route: a way to the agent that was tried. scheduler: the scheduler's report on the job.
Kind = Literal["state", "message", "error", "route", "scheduler"]

#: The file is cut to its newer half when it is longer.
MAX_BYTES = 256 * 1024
_MAX_TEXT_CHARS = 2000
#: Number of events that the status of a session holds.
RECENT = 20


class SessionEvent(TypedDict):
    """One event. at: Unix time. state: the new state, for kind `state`, else None.

    error: the error that is the event, or its reason.
    """

    at: float
    kind: Kind
    text: str
    state: str | None
    error: ErrorInfo | None


class Record(Protocol):
    """Takes an event: `EventLog.add`."""

    def __call__(
        self,
        kind: Kind,
        text: str,
        *,
        state: str | None = None,
        error: TunnelkitError | None = None,
    ) -> None:
        """Append an event."""


def unrecorded(
    kind: Kind, text: str, *, state: str | None = None, error: TunnelkitError | None = None
) -> None:
    """Drop an event, where there is no session."""


class EventLog:
    """Appends events to a file, 0600. Losing one never stops the session.

    recent: the last ones of this session, the oldest first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.recent: deque[SessionEvent] = deque(maxlen=RECENT)

    def add(
        self,
        kind: Kind,
        text: str,
        *,
        state: str | None = None,
        error: TunnelkitError | None = None,
    ) -> None:
        """Append an event; one that repeats the last is left out."""
        event: SessionEvent = {
            "at": round(time.time(), 3),
            "kind": kind,
            "text": shown(text)[:_MAX_TEXT_CHARS],
            "state": state,
            "error": error.to_json() if error is not None else None,
        }
        if self.recent and self.recent[-1] == {**event, "at": self.recent[-1]["at"]}:
            return
        self.recent.append(event)
        with contextlib.suppress(OSError):
            self._append(json.dumps(event).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        fd = os.open(self._path, flags, 0o600)
        with os.fdopen(fd, "r+b", buffering=0) as file:
            file.write(line)
            if file.tell() > MAX_BYTES:
                file.seek(-MAX_BYTES // 2, os.SEEK_END)
                newer = file.read().partition(b"\n")[2]
                file.truncate(0)
                file.write(newer)


def read_events(path: Path, count: int) -> list[SessionEvent]:
    """Return the last `count` events, the oldest first; none if there is no file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found: list[SessionEvent] = []
    for line in lines[-count:] if count > 0 else []:
        # A process that was killed may leave half a line.
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                found.append(_event(event))
    return found


def _event(data: dict[str, object]) -> SessionEvent:
    at, kind, state, error = (data.get(key) for key in ("at", "kind", "state", "error"))
    kinds: dict[str, Kind] = {
        "state": "state",
        "error": "error",
        "route": "route",
        "scheduler": "scheduler",
    }
    return {
        "at": float(at) if isinstance(at, int | float) else 0.0,
        "kind": kinds.get(str(kind), "message"),
        "text": str(data.get("text", "")),
        "state": None if state is None else str(state),
        "error": TunnelkitError.from_json(error).to_json() if isinstance(error, dict) else None,
    }
