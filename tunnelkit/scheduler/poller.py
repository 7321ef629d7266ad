"""One poller asks the scheduler about all watched jobs with one command.

The rules, in one place:
- Fast at first, then every SETTLED_S: Slurm's manual forbids looped squeue.
- A transient error makes the state UNKNOWN and the pauses longer, never ENDED. So does each
  refusal once the job was seen: it may have waited for hours, and sites' errors have many words.
- A job that vanished is queried again before `confirm_end` is asked for proof of its
  end; silence alone never ends it.

There is no background task: one of the watchers makes the query, and the others
share its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from tunnelkit.errors import (
    ConnectionFailed,
    HostKeyError,
    SchedulerError,
    TimeoutExpired,
    TunnelkitError,
)
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command, Scheduler

#: Pauses after a job's last change, in seconds; then SETTLED_S.
FIRST_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 15.0)
SETTLED_S = 30.0
#: Pauses while the scheduler does not answer: doubled from the first to the last.
BACKOFF_S = (2.0, 120.0)
#: Pause before the second query for a vanished job.
SECOND_LOOK_S = 5.0

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
Run = Callable[[Command], Awaitable[Completed]]


async def _nobody_knows(job_id: str) -> bool:
    return False


@dataclass(slots=True)
class _Answer:
    """One job's status in the last query, with its time and the number of pokes before it."""

    status: JobStatus
    asked_at: float
    pokes: int


@dataclass(frozen=True, slots=True)
class _Failure:
    """The error of the last query, if it failed."""

    error: TunnelkitError
    asked_at: float
    pokes: int


@dataclass(slots=True)
class _Pace:
    """The pause of one watcher before its next query."""

    looks: int = 0
    failures: int = 0
    settled: bool = False

    def pause_s(self) -> float:
        if self.failures:
            first, last = BACKOFF_S
            return min(last, first * 2.0 ** min(self.failures - 1, 30))
        if self.settled or self.looks > len(FIRST_PAUSES_S):
            return SETTLED_S
        return FIRST_PAUSES_S[max(0, self.looks - 1)]


class Poller:
    """Watches jobs through `run`, which runs a command on the login host.

    confirm_end(job_id): returns True if there is proof that a vanished job has ended (its
    status file, the accounting); without it such a job stays UNKNOWN. clock: counts
    seconds. sleep: waits for some.
    """

    def __init__(
        self,
        run: Run,
        scheduler: Scheduler,
        *,
        confirm_end: Callable[[str], Awaitable[bool]] = _nobody_knows,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._run = run
        self._scheduler = scheduler
        self._confirm_end = confirm_end
        self._clock = clock
        self._sleep = sleep
        self._watched: dict[str, int] = {}
        #: jobs that the scheduler has known since this poller began
        self._seen: set[str] = set()
        self._answers: dict[str, _Answer] = {}
        self._failure: _Failure | None = None
        self._asking = asyncio.Lock()
        self._poked = asyncio.Event()
        self._pokes = 0

    def poke(self) -> None:
        """Query now instead of at the end of the pause: after a reconnect, or a sleep."""
        poked, self._poked = self._poked, asyncio.Event()
        self._pokes += 1
        poked.set()

    def learn(self, status: JobStatus) -> None:
        """Take a job's status from an answer of this moment: the next watcher need not ask."""
        self._answers[status.job_id] = _Answer(status, self._clock(), self._pokes)
        self._seen.add(status.job_id)

    async def watch(self, job_id: str, *, hurried: bool = False) -> AsyncGenerator[JobStatus]:
        """Yield the job's status after each query, until it has ENDED (the last one yielded).

        A job that is `ending` is queried further: how it ended is not known yet.
        hurried: a change is due, even of a running job; the caller leaves early, through
        `contextlib.aclosing`.
        Raises SchedulerError if the scheduler refuses for good before the job was seen; any other
        error of its yields UNKNOWN and goes on.
        """
        self._watched[job_id] = self._watched.get(job_id, 0) + 1
        try:
            async for status in self._looks(job_id, hurried=hurried):
                yield status
        finally:
            self._watched[job_id] -= 1
            if not self._watched[job_id]:
                del self._watched[job_id]
                self._answers.pop(job_id, None)

    async def _looks(self, job_id: str, *, hurried: bool) -> AsyncIterator[JobStatus]:
        pace = _Pace()
        known: JobStatus | None = None
        vanished = 0
        asked_at = float("-inf")
        while True:
            pokes = self._pokes
            try:
                status, asked_at = await self._ask(job_id, asked_at, pace.pause_s() / 2)
            except TunnelkitError as error:
                refused = isinstance(error, SchedulerError) and job_id in self._seen
                if not (_may_pass(error) or refused):
                    raise
                asked_at = self._clock()
                pace.failures += 1
                yield _unknown(job_id, known, error.one_line())
                await self._pause_until(asked_at + pace.pause_s(), pokes)
                continue
            pace.failures = 0
            vanished = vanished + 1 if _is_vanished(status) else 0
            if vanished >= 2 and await self._has_ended(job_id):
                why = "the scheduler has forgotten the job, and the job's own record says it ended"
                yield replace(status, state=JobState.ENDED, explanation=why)
                return
            yield _unknown(job_id, known, status.explanation) if vanished else status
            if status.state is JobState.ENDED and not status.ending:
                return
            pace.looks = 1 if not vanished and _changed(known, status) else pace.looks + 1
            pace.settled = status.state is JobState.RUNNING and not hurried
            known = known if vanished else status
            pause_s = SECOND_LOOK_S if vanished == 1 else pace.pause_s()
            await self._pause_until(asked_at + pause_s, pokes)

    async def _ask(self, job_id: str, since: float, max_age_s: float) -> tuple[JobStatus, float]:
        """Return the job's status and the time of its query.

        Another watcher's query serves if it is newer than `since` and not too old. The next
        query is timed from this one, so watchers of the same pace share each query."""
        async with self._asking:
            oldest = self._clock() - max_age_s

            def serves(asked_at: float, pokes: int) -> bool:
                return asked_at > since and asked_at >= oldest and pokes == self._pokes

            failure, answer = self._failure, self._answers.get(job_id)
            if failure and serves(failure.asked_at, failure.pokes):
                raise failure.error
            if not (answer and serves(answer.asked_at, answer.pokes)):
                await self._query(sorted(self._watched))
                answer = self._answers[job_id]
            return answer.status, answer.asked_at

    async def _has_ended(self, job_id: str) -> bool:
        try:
            return await self._confirm_end(job_id)
        except TunnelkitError as error:
            if not (_may_pass(error) or isinstance(error, SchedulerError)):
                raise
            return False

    async def _query(self, job_ids: list[str]) -> None:
        asked_at, pokes = self._clock(), self._pokes
        try:
            done = await self._run(self._scheduler.query(job_ids))
            found = self._scheduler.parse_query(done, job_ids)
        except TunnelkitError as error:
            self._failure = _Failure(error, asked_at, pokes)
            raise
        self._failure = None
        for job_id, status in found.items():
            self._answers[job_id] = _Answer(status, asked_at, pokes)
            if not _is_vanished(status):
                self._seen.add(job_id)

    async def _pause_until(self, due: float, pokes: int) -> None:
        """Wait until `due`, or until a poke later than the `pokes` already served."""
        if self._pokes != pokes:
            return
        sleep = asyncio.ensure_future(self._sleep(max(0.0, due - self._clock())))
        poked = asyncio.ensure_future(self._poked.wait())
        try:
            await asyncio.wait((sleep, poked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in (sleep, poked):
                waiter.cancel()
                with suppress(asyncio.CancelledError):
                    await waiter


def _may_pass(error: TunnelkitError) -> bool:
    if isinstance(error, HostKeyError):
        return False
    return error.transient or isinstance(error, ConnectionFailed | TimeoutExpired)


def _is_vanished(status: JobStatus) -> bool:
    return status.state is JobState.UNKNOWN and not status.native_state


def _changed(before: JobStatus | None, now: JobStatus) -> bool:
    return before is None or before.state is not now.state


def _unknown(job_id: str, known: JobStatus | None, why: str | None) -> JobStatus:
    """Return the status as UNKNOWN, with the nodes and the time left that were known before."""
    base = known or JobStatus(job_id, JobState.UNKNOWN, "")
    return replace(base, state=JobState.UNKNOWN, native_state="", explanation=why)
