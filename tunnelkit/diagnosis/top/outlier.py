"""The one row that differs most from the others. A mean over all of them would hide it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tunnelkit.diagnosis.top.frame import GpuRow, ProcessRow

#: With fewer nobody can say which one differs.
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class _Figure:
    """One figure of a row. step: a difference from the median that counts."""

    name: str
    of: Callable[[ProcessRow | GpuRow], object]
    step: float


_PROCESS = (
    _Figure("waits for CPUs", lambda row: row.get("wait"), 0.3),
    _Figure("CPU", lambda row: row.get("run"), 0.3),
    _Figure("GPU", lambda row: row.get("gpu_busy"), 30.0),
    _Figure("power", lambda row: row.get("power_w"), 60.0),
)
_GPU = (
    _Figure("GPU", lambda row: row.get("busy"), 30.0),
    _Figure("power", lambda row: row.get("power_w"), 60.0),
    _Figure("clock", lambda row: row.get("clock_mhz"), 300.0),
)


def mark_worst(rows: Sequence[ProcessRow] | Sequence[GpuRow]) -> None:
    """Write into one row in what it differs most, if one stands apart from all others.

    A row counts whose figure is further from the median than a step, and further than any other
    row's by as much.
    """
    if len(rows) < _FEWEST:
        return
    best, at, name = 1.0, -1, ""
    for figure in _PROCESS if "run" in rows[0] else _GPU:
        found = [_number(figure.of(row)) for row in rows]
        known = [value for value in found if value is not None]
        if len(known) < len(rows):
            continue
        middle = median(known)
        away = [abs(value - middle) / figure.step for value in known]
        first, second = sorted(away, reverse=True)[:2]
        if first - second >= 1.0 and first > best:
            best, at, name = first, away.index(first), figure.name
    if at >= 0:
        rows[at]["worst"] = name


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
