"""Whether this process was out of the world for a while: the laptop slept, or it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

_LIMIT_S = 10.0


class SuspendDetector:
    """Asked once per `period_s`. The clocks can be given, for tests."""

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
        """Whether there was a pause of more than 10 s since the last call. During sleep
        monotonic clocks stand still and wall clocks don't; a stopped process is only late.
        A wall clock that is set counts as well: that costs one look at everything."""
        wall, mono = self._wall(), self._mono()
        slept_s = abs((wall - self._then[0]) - (mono - self._then[1]))
        late_s = mono - self._then[1] - self._period_s
        self._then = (wall, mono)
        return slept_s > _LIMIT_S or late_s > _LIMIT_S
