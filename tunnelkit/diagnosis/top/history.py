"""The last hour of each row, in steps of ten seconds; bounded however many rows there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tunnelkit.diagnosis.top.frame import GpuRow, HistoryInfo, Points, ProcessRow

STEP_S = 10.0
_MOST_STEPS = 360
_MOST_VALUES = 200_000

_Values = tuple[float | None, float | None, float | None, float | None, float | None]


class TopHistory:
    """Grows by `add`; what is older than an hour, or too much, is forgotten."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, dict[str, _Values]]] = deque(maxlen=_MOST_STEPS)

    def add(self, time_s: float, rows: Iterable[ProcessRow], gpus: Iterable[GpuRow]) -> None:
        """Take a moment's rows; one that comes too soon after the last is left out."""
        step: dict[str, _Values] = {
            one["key"]: (one["run"], one["wait"], one["rss_bytes"], one["gpu_busy"], one["power_w"])
            for one in rows
        }
        for gpu in gpus:
            step[gpu["key"]] = (None, None, gpu["used_bytes"], gpu["busy"], gpu["power_w"])
        if self._steps and time_s - self._steps[-1][0] < STEP_S / 2:
            return
        self._steps.append((time_s, step))
        while len(self._steps) * max(1, len(step)) > _MOST_VALUES:
            self._steps.popleft()

    def info(self, keys: Iterable[str], most: int = _MOST_STEPS) -> HistoryInfo:
        """Return the last steps of these rows."""
        steps = list(self._steps)[-most:]
        return {
            "times_s": [time_s for time_s, _ in steps],
            "rows": {key: _points([step.get(key) for _, step in steps]) for key in keys},
        }


def _points(values: list[_Values | None]) -> Points:
    def column(at: int) -> list[float | None]:
        return [None if one is None else one[at] for one in values]

    return {"run": column(0), "wait": column(1), "rss_bytes": column(2), "gpu": column(3),
            "power_w": column(4)}  # fmt: skip
