"""The scheduler's word on a session's job: how long it has, and what becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import JobState
from tunnelkit.session.allocation import AllocationManager
from tunnelkit.session.job.job import in_words
from tunnelkit.session.job.outcome import JobOutcome
from tunnelkit.session.job.time_limit import TimeLimit

#: How long a scheduler may take to say how a job ended whose processes it clears away.
_LAST_STATE_S = 120.0


class JobMonitor:
    """`run` beside a session that has an agent; `fate` once that is gone. lost: told why no
    agent can be in the job any more, as soon as the scheduler says so: a hung node is silent."""

    def __init__(
        self, cluster: AllocationManager, limit: TimeLimit, lost: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._limit = limit
        self._lost = lost
        self._over: str | None = None

    async def run(self) -> None:
        """Until the job is over for good."""
        self._over = None
        if self._cluster.job is None:
            return
        with contextlib.suppress(TunnelkitError):
            await self._cluster.job.look_for_twins()
        async with contextlib.aclosing(self._cluster.job.watch()) as states:
            async for status in states:
                self._limit.tells(status.time_left_s)
                over = status.state is JobState.ENDED
                if over and not status.ending:
                    self._over = await self._cluster.describe_end(status)
                if over or status.state is JobState.PENDING:
                    self._lost(self._over or f"job {status.job_id}: {in_words(status)}")
                if self._over is not None:
                    return

    async def fate(self) -> JobOutcome:
        """What became of the job whose agent is gone."""
        if self._over is not None:
            return JobOutcome(ended=self._over)
        with contextlib.suppress(TunnelkitError):
            return await self._cluster.fate(gone=True)
        return JobOutcome()

    async def last_state(self) -> str | None:
        """How the job ended, if that was not known at once; None if it was, or can't be told."""
        job = self._cluster.job
        if self._over is not None or job is None or self._cluster.allocation is None:
            return None
        with contextlib.suppress(TunnelkitError, TimeoutError):
            async with asyncio.timeout(_LAST_STATE_S), contextlib.aclosing(job.watch()) as states:
                async for status in states:
                    if status.state is JobState.ENDED and not status.ending:
                        return await self._cluster.describe_end(status)
        return None
