"""The time limit draws near: told at 10 and at 2 minutes left, each once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

#: Told when so many seconds are left.
STAGES_S = (600, 120)
#: A job that has hardly more than a stage when it begins was asked for like that.
_MARGIN_S = 60


class TimeLimit:
    """What is left of the allocation. `tells` for every answer of the scheduler, then `close`.

    warn: told the seconds left, at each stage once, also across sessions: `memory` is the file
    that remembers (`JOB STAGE...`).
    """

    def __init__(
        self,
        memory: Path,
        warn: Callable[[int], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory = memory
        self._warn = warn
        self._clock = clock
        self._left: tuple[int, float] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._job = ""
        self._told: set[int] = set()

    @property
    def left_s(self) -> int | None:
        """Seconds left; None if that is not known."""
        if self._left is None:
            return None
        left_s, when_s = self._left
        return max(0, round(left_s - (self._clock() - when_s)))

    @property
    def warned(self) -> bool:
        """True once the first warning is out."""
        return bool(self._told) and self._left is not None and (self.left_s or 0) <= max(STAGES_S)

    def begins(self, job_id: str | None, left_s: int | None) -> None:
        """An allocation has been had, with so much time left."""
        self._job, self._told = job_id or "", set()
        with contextlib.suppress(OSError, ValueError):
            job, *stages = self._memory.read_text().split()
            if job == self._job:
                self._told = {int(stage) for stage in stages}
        if not self._told and left_s is not None:
            # Less than was ever asked for is no news.
            self._told = {stage for stage in STAGES_S if left_s <= stage + _MARGIN_S}
        self.tells(left_s)

    def tells(self, left_s: int | None) -> None:
        """The scheduler says how much is left; None: it did not tell."""
        if left_s is not None:
            self._left = (left_s, self._clock())
            self._look()

    def runs_again(self) -> None:
        """The job has gone back into the queue: all begins anew."""
        self._stop()
        self._left, self._told = None, set()
        self._memory.unlink(missing_ok=True)

    def close(self) -> None:
        """Warn no more; what is left stays known as it is."""
        self._stop()

    def _look(self) -> None:
        self._stop()
        left_s = self.left_s
        assert left_s is not None
        due = {stage for stage in STAGES_S if left_s <= stage}
        if due - self._told and left_s > 0:
            self._told |= due
            self._remember()
            self._warn(left_s)
        later = [stage for stage in STAGES_S if stage not in due]
        if later:
            pause_s = left_s - max(later)
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._look)

    def _remember(self) -> None:
        words = [self._job, *map(str, sorted(self._told))]
        with contextlib.suppress(OSError):
            self._memory.write_text(" ".join(words))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def in_words(left_s: int) -> str:
    """The warning, for people."""
    minutes = (left_s + 30) // 60
    left = f"{minutes} minute{'' if minutes == 1 else 's'}" if minutes else f"{left_s} s"
    return f"the time limit is near: the job ends in {left}, with all that runs in it"
