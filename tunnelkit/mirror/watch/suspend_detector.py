"""Detector of pauses of this process: the laptop slept, or the process was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

_LIMIT_S = 10.0


class SuspendDetector:
    """Detects pauses, if called once per `period_s`. Tests pass their own clocks."""

    def __init__(
        self,
        period_s: float,
        *,
        wall: Callable[[], float] = time.time,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._period_s = period_s
        self._wall = wall
        self._mono = mono
        self._then = (wall(), mono())

    def noticed(self) -> bool:
        """Return True if there was a pause of more than 10 s since the last call.

        During sleep monotonic clocks stand still and wall clocks go on. A stopped process is only
        late. Setting the wall clock counts as a pause: that costs one full scan.
        """
        wall, mono = self._wall(), self._mono()
        slept_s = abs((wall - self._then[0]) - (mono - self._then[1]))
        late_s = mono - self._then[1] - self._period_s
        self._then = (wall, mono)
        return slept_s > _LIMIT_S or late_s > _LIMIT_S
