"""Monitor of a session's job: its time left, and its outcome, from the scheduler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import JobState, JobStatus, LostNode, job_words
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.job.job import JobHandle, in_words
from tunnelkit.session.job.outcome import JobOutcome, describe_end, outcome_of
from tunnelkit.session.job.time_limit import TimeLimit

#: Limit of the wait for a job's outcome while the scheduler ends its processes.
_LAST_STATE_S = 120.0
Spawn = Callable[[Coroutine[object, object, None]], asyncio.Task[None]]


@dataclass
class JobMonitor:
    """Call `begin` once the agent is connected, and `fate` after it is lost.

    lost(reason): called as soon as the scheduler reports that the job is over; a hung node
    would send nothing. nodes_lost(status): called with each state of a job that has lost nodes.
    say: called with a message for the user.
    """

    cluster: AllocationManager
    limit: TimeLimit
    lost: Callable[[str], None]
    nodes_lost: Callable[[JobStatus], None]
    say: Callable[[str], None]
    _over: str | None = None
    _gone: LostNode | None = None
    _watching: asyncio.Task[None] | None = None

    async def begin(self, spawn: Spawn) -> None:
        """Watch the job that the cluster has now, until it is over, and no other one.

        spawn: starts a task, which the caller ends."""
        await self._leave_off()
        self._watching = spawn(self._watch())

    async def _leave_off(self) -> None:
        if self._watching is not None:
            await cancel_all(self._watching)

    async def _watch(self) -> None:
        self._over = self._gone = None
        job = self.cluster.job
        if job is None:
            return
        with contextlib.suppress(TunnelkitError):
            await job.look_for_twins()
        stands: str | None = None
        async with contextlib.aclosing(job.watch()) as states:
            async for status in states:
                if status.state is JobState.RUNNING:
                    self.limit.tells(status.time_left_s)
                    stands = self._how_it_runs(status, stands)
                if status.lost:
                    self.nodes_lost(status)
                self._gone = gone = self.cluster.allocated.lost_in(status)
                if gone is not None:
                    self.lost(f"what ran on {gone.name} is gone: {gone.why}")
                    return
                over = status.state is JobState.ENDED
                if over and not status.ending:
                    self._over = await self._describe(job, status)
                if over or status.state is JobState.PENDING:
                    self.lost(self._over or f"{job_words(status.job_id)}: {in_words(status)}")
                if self._over is not None:
                    return

    def _how_it_runs(self, status: JobStatus, before: str | None) -> str | None:
        """Say why a running job stands still, as its agent can't, and that it goes on. Return what
        was said; before: of the last state."""
        if status.explanation != before:
            text = status.explanation or "it runs as before"
            self.say(f"{job_words(status.job_id)}: {text}")
        return status.explanation

    async def fate(self) -> JobOutcome:
        """Return the outcome of the job whose agent is gone, and watch it no more."""
        try:
            return await self._fate()
        finally:
            await self._leave_off()

    async def _fate(self) -> JobOutcome:
        if self._gone is not None:
            return outcome_of(self._gone)
        if self._over is not None:
            return JobOutcome(ended=self._over)
        job = self.cluster.job
        with contextlib.suppress(TunnelkitError):
            outcome = await self.cluster.fate(gone=True)
            if job is None or outcome.last is None:
                return outcome
            return JobOutcome(ended=await self._describe(job, outcome.last))
        return JobOutcome()

    async def last_state(self) -> str | None:
        """Return how the job ended if that was not known at once; else None."""
        job = self.cluster.job
        if self._over is not None or job is None:
            return None
        with contextlib.suppress(TunnelkitError, TimeoutError):
            async with asyncio.timeout(_LAST_STATE_S), contextlib.aclosing(job.watch()) as states:
                async for status in states:
                    if status.state is JobState.ENDED and not status.ending:
                        return await self._describe(job, status)
        return None

    async def _describe(self, job: JobHandle, status: JobStatus) -> str:
        """Return in plain words how the job ended: the verdict, if there is one at once."""
        from tunnelkit.session.why.end_line import end_line

        run = self.cluster.run
        box_dir = self.cluster.setup.settings.cluster.directory
        verdict = await end_line(job.scheduler, run, status, box_dir)
        return await describe_end(job.scheduler, run, status, verdict)
