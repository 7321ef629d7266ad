"""Warnings before the job's time limit: at 10 and at 2 minutes left, each once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

#: Stages: a warning comes when this many seconds are left.
STAGES_S = (600, 120)
#: No warning of a stage if the job begins with hardly more time: the user asked for that.
_MARGIN_S = 60
#: By so much the job's own warning may come before its time.
_EARLY_S = 90


class TimeLimit:
    """The allocation's time left: `begins`, `tells` for each answer of the scheduler, `close`.

    memory: the file that records the warnings (`JOB STAGE...`), so each comes once across sessions.
    warn: called with the seconds left, once per stage.
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
        """Seconds left; None if not known."""
        if self._left is None:
            return None
        left_s, when_s = self._left
        return max(0, round(left_s - (self._clock() - when_s)))

    @property
    def warned(self) -> bool:
        """True after the first warning."""
        return bool(self._told) and self._left is not None and (self.left_s or 0) <= max(STAGES_S)

    def begins(self, job_id: str | None, left_s: int | None) -> None:
        """Start with a new allocation; `left_s` as in `tells`."""
        self._job, self._told = job_id or "", set()
        with contextlib.suppress(OSError, ValueError):
            job, *stages = self._memory.read_text().split()
            if job == self._job:
                self._told = {int(stage) for stage in stages}
        if not self._told and left_s is not None:
            # The user asked for so little time: no warning of these stages.
            self._told = {stage for stage in STAGES_S if left_s <= stage + _MARGIN_S}
        self.tells(left_s)

    def tells(self, left_s: int | None) -> None:
        """Update the seconds left as the scheduler reports them; None: there is no limit."""
        if left_s is None:
            self._stop()
            self._left = None
        else:
            self._left = (left_s, self._clock())
            self._look()

    def job_tells(self, left_s: int) -> None:
        """Take the seconds left by the job's own warning, if the scheduler's answers leave it more:
        its time was shortened since, or is not known. Slurm may warn a minute early."""
        known_s = self.left_s
        if known_s is None or known_s > left_s + _EARLY_S:
            self.tells(left_s)

    def runs_again(self) -> None:
        """Reset everything: the job has gone back into the queue."""
        self._stop()
        self._left, self._told = None, set()
        self._memory.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop the warnings; `left_s` stays available."""
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
    """Return the text of the warning."""
    minutes = (left_s + 30) // 60
    left = f"{minutes} minute{'' if minutes == 1 else 's'}" if minutes else f"{left_s} s"
    return f"the time limit is near: the job ends in {left}, with all that runs in it"
