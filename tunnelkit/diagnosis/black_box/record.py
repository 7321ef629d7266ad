"""The black box's file as evidence. The far side may have written anything into it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping

from tunnelkit.diagnosis.evidence.box import (
    BoxSample,
    BoxView,
    MemoryLevel,
    ProcessEnd,
    SignalSeen,
)

#: Begins each file's text in what `scheduler/box_section.py` reads.
MARK = "tk-box "
_FORMAT = 1
_MOST_BOXES, _MOST_BOX, _MOST_LINE, _MOST_LINES = 8, 1 << 19, 1 << 17, 4000
_MOST_NUMBER = 1 << 62
_LEVELS = frozenset({"job", "step", "task", "above"})
#: These end a program that did not mean to end. TERM and INT end helpers, too.
_FATAL = frozenset({4, 6, 7, 8, 9, 11, 24, 25, 31})
#: A box that began so much before the job's submission is an earlier job's of the same number.
_CLOCKS_DIFFER_S = 60.0

Line = Mapping[str, object]


def parse_boxes(text: str) -> tuple[BoxView, ...]:
    """Return the boxes in a text of several files; those that can't be read are left out."""
    found = []
    for part in f"\n{text}".split(f"\n{MARK}")[1 : _MOST_BOXES + 1]:
        _, _, body = part.partition("\n")
        box = parse_box(body)
        if box is not None:
            found.append(box)
    return tuple(found)


def parse_box(text: str) -> BoxView | None:
    """Return a box; None if this is none."""
    lines = tuple(_lines(text[:_MOST_BOX]))
    head = next(iter(_of(lines, "head")), None)
    if head is None or _whole(head, "format") != _FORMAT:
        return None
    end = _last(lines, "end")
    agent = _whole(end, "agent")
    holds_agent = head.get("holds_agent") is True
    gone = _of(lines, "gone")
    programs = [_process_end(one) for one in gone if _counts(one, agent)]
    own = [_process_end(one) for one in gone if _whole(one, "pid") == agent and _known(one)]
    return BoxView(
        node=_text(head, "node"),
        uid=_whole(head, "uid"),
        started_s=_number(head, "started_s"),
        written_s=_number(_last(lines, "written"), "time_s"),
        memory=tuple(_level(one) for one in _of(lines, "memory")[:16]),
        node_oom_kills=_whole(_last(lines, "node"), "oom_kill"),
        ends=_sorted(own if holds_agent else programs),
        signals=tuple(_signal(one) for one in _of(lines, "signal")[:50]),
        samples=_samples(lines),
        cpu_limit_s=_whole(head, "cpu_limit_s"),
        attempt=_whole(head, "attempt") or 0,
        holds_agent=holds_agent,
        agent_code=_whole(end, "code"),
        ended_s=_number(end, "time_s"),
        killed_s=max((_number(one, "time_s") or 0.0 for one in _of(lines, "oom")), default=None),
        victims=_sorted(_process_end(one) for one in gone if one.get("oom")),
        program_ends=_sorted(programs) if holds_agent else (),
        log_text=_text(_last(lines, "log"), "text", 1 << 16),
    )


def choose_box(boxes: Iterable[BoxView], submitted_s: float | None) -> BoxView | None:
    """Return the box of a job's last run: of several nodes the one where something happened.

    submitted_s: a box that began before is an earlier job's of the same number."""
    own = [
        one
        for one in boxes
        if submitted_s is None
        or one.started_s is None
        or one.started_s >= submitted_s - _CLOCKS_DIFFER_S
    ]
    if not own:
        return None
    last = max(own, key=lambda one: (one.attempt, one.started_s or 0.0)).attempt
    return max((one for one in own if one.attempt == last), key=_weight)


def _weight(box: BoxView) -> tuple[bool, bool, float]:
    return box.killed_s is not None, box.first_failure is not None, -(box.started_s or 0.0)


def _lines(text: str) -> Iterator[Line]:
    for line in text.split("\n")[:_MOST_LINES]:
        if not line.startswith("{") or len(line) > _MOST_LINE:
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _of(lines: Iterable[Line], kind: str) -> list[Line]:
    return [one for one in lines if one.get("kind") == kind]


def _last(lines: Iterable[Line], kind: str) -> Line:
    found = _of(lines, kind)
    return found[-1] if found else {}


def _counts(line: Line, agent: int | None) -> bool:
    """True for the end of a program, not of a helper of it: a rank, what tk has started, or one
    that a fatal signal ended."""
    if not _known(line) or _whole(line, "pid") == agent:
        return False
    started = agent is not None and _whole(line, "parent") == agent
    return started or _whole(line, "rank") is not None or _whole(line, "signal") in _FATAL


def _known(line: Line) -> bool:
    return (_whole(line, "code") is None) != (_whole(line, "signal") is None)


def _process_end(line: Line) -> ProcessEnd:
    return ProcessEnd(
        pid=_whole(line, "pid") or 0,
        name=_text(line, "name"),
        rank=_whole(line, "rank"),
        code=_whole(line, "code"),
        signal=_whole(line, "signal"),
        ended_s=_number(line, "time_s"),
        cpu_s=_number(line, "cpu_s"),
        rss_bytes=_whole(line, "rss_bytes"),
    )


def _sorted(ends: Iterable[ProcessEnd]) -> tuple[ProcessEnd, ...]:
    return tuple(sorted(ends, key=lambda one: one.ended_s or 0.0))[:300]


def _level(line: Line) -> MemoryLevel:
    level = _text(line, "level")
    return MemoryLevel(
        level=level if level in _LEVELS else "above",
        path=_text(line, "path", 300),
        limit_bytes=_whole(line, "limit_bytes"),
        peak_bytes=_whole(line, "peak_bytes"),
        oom=_whole(line, "oom"),
        oom_kill=_whole(line, "oom_kill"),
        refused=_whole(line, "refused"),
    )


def _signal(line: Line) -> SignalSeen:
    return SignalSeen(
        signal=_whole(line, "signal") or 0,
        time_s=_number(line, "time_s") or 0.0,
        sender_uid=_whole(line, "uid"),
        sender_pid=_whole(line, "pid"),
        sender_name=_text(line, "name"),
    )


def _samples(lines: Iterable[Line]) -> tuple[BoxSample, ...]:
    """Return the minutes and the finer samples, each time once."""
    by_time = {}
    for one in lines:
        time_s = _number(one, "time_s")
        if one.get("kind") in ("minute", "sample") and time_s is not None:
            by_time[time_s] = BoxSample(
                time_s=time_s,
                cpu_s=_number(one, "cpu_s"),
                rss_bytes=_whole(one, "rss_bytes"),
                log_bytes=_whole(one, "log_bytes"),
            )
    return tuple(by_time[time_s] for time_s in sorted(by_time))


def _number(line: Line, key: str) -> float | None:
    value = line.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value) if isinstance(value, float) or 0 <= value < _MOST_NUMBER else math.nan
    return number if math.isfinite(number) and 0 <= number < _MOST_NUMBER else None


def _whole(line: Line, key: str) -> int | None:
    value = line.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _MOST_NUMBER else None


def _text(line: Line, key: str, most: int = 100) -> str:
    value = line.get(key)
    if not isinstance(value, str):
        return ""
    # Half of a surrogate pair can't be written anywhere.
    return re.sub("[\ud800-\udfff]", "?", value[-most:])
