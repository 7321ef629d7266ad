"""The record of a black box: lines of JSON, one object each, at most 256 KB together.

Each has a `kind`. `head`: of which job. `memory`, one for each cgroup level, and `node`: counters,
as differences since the start. `minute`: one sample a minute. `sample`: one in 5 s of the last
5 minutes. `gone`: a process that ended. `oom`: a rise of the kernel's count of killed processes.
`signal`: one that reached the box. `log`: the end of the job's log. `end`: of the job's script.
`written` is last.
"""

import json
from collections import deque
from typing import Deque, Dict, List, Optional, Tuple, Union

#: Of the whole file.
MOST_BYTES = 256 * 1024
FORMAT = 1
_MINUTES, _SAMPLES, _GONE, _EVENTS = 1440, 60, 200, 50
_MOST_LOG = 64 * 1024

Row = List[Union[str, int, float, None]]
Value = Union[str, int, float, bool, None, List[Row]]
Line = Dict[str, Value]


class Record:
    """The rings. head: the first line, without its kind."""

    def __init__(self, head: Line) -> None:
        self.head = head
        self.minutes: Deque[Line] = deque(maxlen=_MINUTES)
        self.samples: Deque[Line] = deque(maxlen=_SAMPLES)
        #: The first that failed counts most, so the first ones are kept as well as the last.
        self.first_failed: List[Line] = []
        self.gone: Deque[Line] = deque(maxlen=_GONE)
        self.events: Deque[Line] = deque(maxlen=_EVENTS)
        self.counters: List[Line] = []
        self.log: Tuple[str, str] = ("", "")
        self.end: Optional[Line] = None

    def add_gone(self, line: Line) -> None:
        """Add a process that has ended."""
        failed = line.get("signal") or line.get("code")
        if (failed or line.get("oom")) and len(self.first_failed) < 20:
            self.first_failed.append(line)
        else:
            self.gone.append(line)

    def encode(self, now_s: float) -> bytes:
        """Return the whole file. The oldest minutes are left out first if there are too many."""
        fixed = [_line("head", {"format": FORMAT, **self.head})]
        fixed += [_line(str(one["kind"]), one) for one in self.counters]
        gone = sorted((*self.first_failed, *self.gone), key=_time)
        last = [_line("sample", one) for one in self.samples]
        last += [_line("gone", one) for one in gone]
        last += [_line(str(one["kind"]), one) for one in self.events]
        path, text = self.log
        if path:
            last.append(_log_line(path, text))
        if self.end is not None:
            last.append(_line("end", self.end))
        last.append(_line("written", {"time_s": now_s}))
        room = MOST_BYTES - sum(map(len, fixed)) - sum(map(len, last))
        return b"".join((*fixed, *_newest(list(self.minutes), room), *last))


def _newest(minutes: List[Line], room: int) -> List[bytes]:
    kept: List[bytes] = []
    for one in reversed(minutes):
        line = _line("minute", one)
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]


def _time(line: Line) -> float:
    value = line.get("time_s")
    return float(value) if isinstance(value, (int, float)) else 0.0


def _line(kind: str, line: Line) -> bytes:
    text = json.dumps({"kind": kind, **line}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


def _log_line(path: str, text: str) -> bytes:
    """Return the log's line: control characters take up to six bytes each, so less may fit."""
    while True:
        line = _line("log", {"path": path, "text": text})
        if len(line) <= _MOST_LOG + 8192 or not text:
            return line
        text = text[len(text) // 4 + 1 :]
