"""The job that holds the allocation: found by name, submitted once, watched, cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import NoReturn, Protocol

from tunnelkit.errors import AllocationError, ConnectionFailed, SchedulerError, TimeoutExpired
from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest, job_words
from tunnelkit.scheduler import job_script
from tunnelkit.scheduler.base import Command, PendingCause, Scheduler
from tunnelkit.scheduler.poller import FIRST_PAUSES_S, Poller
from tunnelkit.session.job.cancelled_jobs import CancelledJobs
from tunnelkit.session.job.log_tail import HINT, last_words
from tunnelkit.session.job.submission import RunReady, Submission, stop

Run = Callable[[Command], Awaitable[Completed]]
_RETRY_S = 5.0
_RETRIES = 6
#: Pause between two questions whether a job that seems to start never really does not.
_DOUBT_S = 60.0
#: An answer to `Scheduler.find` that is older is asked for again.
_NEW_S = 5.0
#: Hint for a job that ended before its agent started, and whose log is not in tk's directory.
_HINT = "get a new one: tk up; `tk why` says what is known of this one"


class PendingWatcher(Protocol):
    """The listener to a job that waits."""

    def is_pending(self, status: JobStatus) -> None:
        """Take a state of the waiting job."""

    async def why_never(self, status: JobStatus) -> str | None:
        """Say why the job can never start; None if no more is known than its reason says."""


class NoWatcher:
    """A listener that does nothing."""

    def is_pending(self, status: JobStatus) -> None:
        """Leave it."""

    async def why_never(self, status: JobStatus) -> str | None:
        """Nobody asks."""
        return None


class JobHandle:
    """One job of one session.

    run: runs a command where it says. jobs_dir: tk's directory for jobs, which login host and
    nodes share; None if they share none. Then the scheduler alone keeps the answer to a
    submission, the job's end and its log.
    status_file: in jobs_dir; the job's body (scheduler/job_script.py) reports its end there; the
    job id is appended to this name.
    cancelled: jobs that tk has cancelled. say: called with a message for the user.
    listed: an answer to `Scheduler.find`, and the time of the question by `time.monotonic`: the
    first `find` takes it if it is new.
    ready: runs the submission, if it can; else `run` does."""

    def __init__(
        self,
        scheduler: Scheduler,
        run: Run,
        *,
        job_name: str,
        jobs_dir: str | None,
        status_file: str | None,
        cancelled: CancelledJobs,
        say: Callable[[str], None] = lambda text: None,
        listed: tuple[Completed, float] | None = None,
        ready: RunReady | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._ready = ready
        self._listed_first = listed
        self._run = run
        self._name = job_name
        self._jobs_dir = jobs_dir
        self._status_file = status_file
        self._say = say
        #: Duplicates: other jobs of the session's job name, not cancelled yet.
        self._twins: list[str] = []
        #: What has ended, but stays until somebody removes it.
        self._left: list[str] = []
        #: A submission without an answer yet.
        self._submission: Submission | None = None
        #: A list of the jobs just after the submission.
        self._seen_first: Completed | None = None
        self._cancelled = cancelled
        self._poller = Poller(run, scheduler, confirm_end=self._confirm_end)
        self.job_id: str | None = None
        self.submitted = False
        #: The time of that by `time.monotonic`; None if another session submitted the job.
        self.submitted_at: float | None = None
        #: True if the user submitted the job without tk: tk watches it, and never cancels it.
        self.foreign = False

    async def find(self) -> JobStatus | None:
        """Find the unfinished job of the session's job name that tk has not cancelled.

        Returns None if there is none. Raises SchedulerError."""
        first, self._listed_first = self._listed_first, None
        is_new = first is not None and time.monotonic() - first[1] < _NEW_S
        listed = await self._listed(first[0] if first is not None and is_new else None)
        told = self._cancelled.ids()
        jobs = [job for job in listed if job.job_id not in told]
        if not jobs:
            return None
        # A running job first, then the oldest.
        best = next((job for job in jobs if job.state is JobState.RUNNING), jobs[0])
        self.job_id = best.job_id
        self._twins = [job.job_id for job in jobs if job.job_id != best.job_id]
        return best

    async def look_for_twins(self) -> None:
        """Cancel all other jobs of this name: a site's sbatch wrapper may have submitted two."""
        if self.foreign or self.job_id is None:
            return
        told = [_number(one) for one in (*self._cancelled.ids(), self.job_id)]
        listed = [job.job_id for job in await self._listed()]
        self._twins = [one for one in listed if _number(one) not in told]
        await self.drop_twins()

    async def drop_twins(self) -> None:
        """Cancel the duplicates that `find` found besides the job that it returned."""
        twins, self._twins = self._twins, []
        for job_id in twins:
            self._say(
                f"{job_words(job_id)} is a second one of this project, beside {self.job_id}: ended"
            )
            await self._cancel_one(job_id)

    async def drop_ended(self) -> None:
        """Remove what `find` found ended. A failure is ignored: it takes no resources."""
        left, self._left = self._left, []
        for job_id in left:
            with contextlib.suppress(SchedulerError):
                self.scheduler.parse_cancel(await self._run(self.scheduler.cancel(job_id)))

    async def adopt(self, job_id: str) -> JobStatus:
        """Use a job that the user submitted; return its status. Raises SchedulerError."""
        self.job_id, self.foreign = job_id, True
        done = await self._run(self.scheduler.query([job_id]))
        return self.scheduler.parse_query(done, [job_id])[job_id]

    def poke(self) -> None:
        """Query the scheduler at once, instead of at the end of the pause."""
        self._poller.poke()

    async def submit(
        self,
        request: ResourceRequest,
        *,
        body: str,
        waiting: Callable[[float], None] = lambda seconds: None,
    ) -> str:
        """Submit the job and return its id; a late or lost reply never submits it twice.

        waiting: called now and then with the seconds without an answer."""
        command = self.scheduler.submit(
            request, job_name=self._name, body=body, log_dir=self._jobs_dir or ""
        )
        # From here on a job of this name is this session's, even if this task is cancelled.
        self.submitted, self.submitted_at = True, time.monotonic()
        attempt = 0
        while True:
            try:
                if attempt and (found := await self.find()) is not None:
                    await self.drop_twins()
                    return found.job_id
                self.job_id = self.scheduler.parse_submit(await self._submit(command, waiting))
                self._learn_first_state()
                return self.job_id
            except (ConnectionFailed, SchedulerError, TimeoutExpired) as error:
                attempt += 1
                if not error.transient or attempt == _RETRIES:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def _submit(self, command: Command, waiting: Callable[[float], None]) -> Completed:
        if self._jobs_dir is None:
            done = await self._run(command)
            other = self.scheduler.amended(command, done)
            return done if other is None else await self._run(other)
        cancel = self.scheduler.cancel("1").argv[:-1]
        self._submission = Submission(
            self._run,
            command,
            cancel,
            ready=self._ready,
            look=self.scheduler.find(self._name).argv,
            undecided=self.scheduler.capabilities.undecided,
            jobs_dir=self._jobs_dir,
            name=self._name,
        )
        done = await self._submission.answer(waiting)
        self._seen_first, self._submission = self._submission.looked, None
        return done

    def _learn_first_state(self) -> None:
        """Take the job's state from the list that came with the answer to its submission."""
        listed, self._seen_first = self._seen_first, None
        if listed is None:
            return
        # What can't be read is asked for in the usual way.
        with contextlib.suppress(SchedulerError):
            for status in self.scheduler.parse_find(listed, self._name):
                if status.job_id == self.job_id:
                    self._poller.learn(status)

    async def wait_running(self, pending: PendingWatcher) -> JobStatus:
        """Wait until the job runs; `pending` gets every pending state.

        Raises AllocationError if it ends first or can never start; the latter is cancelled."""
        ask_at = 0.0
        async with aclosing(self.watch()) as states:
            async for status in states:
                if status.state is JobState.RUNNING and status.nodes:
                    return status
                if status.state is JobState.ENDED:
                    raise AllocationError(
                        f"{job_words(status.job_id)} ended before it could be used",
                        cause=f"{in_words(status)}; {await self.last_words()}",
                        hint=HINT if self._jobs_dir is not None else _HINT,
                    )
                if status.state is JobState.PENDING:
                    cause = self.scheduler.verdict(status)
                    asks = cause is PendingCause.DOUBT and time.monotonic() >= ask_at
                    if cause is PendingCause.FIX or asks:
                        why = await pending.why_never(status)
                        ask_at = time.monotonic() + _DOUBT_S
                        if cause is PendingCause.FIX or why:
                            await self._never(status, why)
                    pending.is_pending(status)
        job = job_words(self.job_id or "")
        raise AllocationError(
            f"{job} is no longer known to the scheduler",
            hint="get a new one: tk up",
        )

    async def _never(self, status: JobStatus, why: str | None) -> NoReturn:
        """Cancel a job that can never start."""
        await self.cancel()
        raise AllocationError(
            f"{job_words(status.job_id)} can never start as it was asked for",
            cause=why or status.explanation or status.reason,
            hint="ask for less, or for another node or partition; it was cancelled",
        )

    async def last_words(self) -> str:
        """Return the end of the job's log, in one line."""
        if self._jobs_dir is None:
            return "its log is where the job ran"
        return await last_words(self._run, self._jobs_dir, self.job_id or "", self._name)

    @property
    def log_file(self) -> str | None:
        """The path of the job's log on the cluster; None if tk did not choose it."""
        if self._jobs_dir is None or self.job_id is None or self.foreign:
            return None
        by_name = self.scheduler.capabilities.log_has_job_name
        return f"{self._jobs_dir}/{self._name if by_name else _number(self.job_id)}.log"

    def watch(self, *, hurried: bool = False) -> AsyncGenerator[JobStatus]:
        """Yield the job's states as they change; polls as often as the scheduler's manual allows.

        hurried: see `Poller.watch`. Raises AllocationError before there is a job."""
        if self.job_id is None:
            raise AllocationError("this session has no job yet", hint="see `tk status`")
        return self._poller.watch(self.job_id, hurried=hurried)

    async def _confirm_end(self, job_id: str) -> bool:
        """True if a job that the scheduler no longer lists has provably ended.

        The proof is the status file of its body, or the scheduler's history."""
        if await self._has_told_end(job_id):
            return True
        command = self.scheduler.history(job_id)
        if command is None:
            return False
        return self.scheduler.parse_history(await self._run(command)) is JobState.ENDED

    async def _has_told_end(self, job_id: str) -> bool:
        """True if the job's body has reported that its agent ended."""
        if self._status_file is None:
            return False
        done = await self._run(
            job_script.read_status(job_script.status_of(self._status_file, job_id))
        )
        told = job_script.parse_status(done.text)
        return told is not None and told.ended

    async def forget_if_over(self, over: bool) -> bool:
        """True if the found job has no agent any more; records it as cancelled then.

        over: True if the caller knows that already; else the body's status file decides."""
        if self.job_id is None or self.job_id in self._cancelled.ids():
            return True
        if not over and not await self._has_told_end(self.job_id):
            return False
        self._cancelled.add(self.job_id)
        return True

    async def wait_cancelled_gone(self, say: Callable[[str], None]) -> None:
        """Wait until the cancelled jobs that still exist have ended. Call it after `find`.

        The wait is short (`FIRST_PAUSES_S`): if a node is down, its job's end may never come."""
        for job_id in self._cancelled.ids():
            say(f"{job_words(job_id)} was cancelled and is still ending: waiting for its end")
            # The first cancellation may have been lost. A second one does no harm.
            with contextlib.suppress(SchedulerError):
                self.scheduler.parse_cancel(await self._run(self.scheduler.cancel(job_id)))
        for pause_s in FIRST_PAUSES_S:
            if not self._cancelled.ids():
                return
            await asyncio.sleep(pause_s)
            await self._listed()
        for job_id in self._cancelled.ids():
            say(f"{job_words(job_id)} has not ended yet: asking for another one beside it")

    async def cancel(self) -> list[str]:
        """Cancel all jobs of this name, or only the job that `find` found; return their ids.

        A submission without an answer is stopped, or cancels its own job. A job that the user
        submitted is never cancelled. Raises SchedulerError."""
        if self.foreign:
            return []
        over = True
        unsure = self._submission is not None or self.job_id is None
        if unsure and self._jobs_dir is not None:
            over = await stop(self._run, self._jobs_dir, self._name, self._submission)
        listed = [job.job_id for job in await self._listed()]
        if self.job_id is not None and not self.submitted:
            listed = [one for one in listed if one == self.job_id]
        elif self.job_id is not None and await self._is_unlisted(self.job_id, listed):
            listed.append(self.job_id)
        for job_id in listed:
            await self._cancel_one(job_id)
        await self.drop_ended()
        if not over:
            raise SchedulerError(
                "the scheduler has not answered the submission yet",
                hint="its job is cancelled as soon as it has an id; `tk down` shows it",
            )
        return listed

    async def _is_unlisted(self, job_id: str, listed: list[str]) -> bool:
        """True if a job has not ended although no list has it, as one at another PBS server."""
        if _number(job_id) in map(_number, listed):
            return False
        done = await self._run(self.scheduler.query([job_id]))
        state = self.scheduler.parse_query(done, [job_id])[job_id].state
        return state in (JobState.PENDING, JobState.RUNNING)

    async def _cancel_one(self, job_id: str) -> None:
        # Recorded first: the answer may get lost although the job is cancelled.
        self._cancelled.add(job_id)
        command = self.scheduler.cancel(job_id)
        if self._status_file is not None:
            command = job_script.cancelling(
                command, job_script.status_of(self._status_file, job_id)
            )
        try:
            self.scheduler.parse_cancel(await self._run(command))
        except SchedulerError:
            self._cancelled.forget(job_id)
            raise

    async def _listed(self, known: Completed | None = None) -> list[JobStatus]:
        """Return the unfinished jobs of this name; forget cancelled jobs that are gone."""
        done = known or await self._run(self.scheduler.find(self._name))
        found = self.scheduler.parse_find(done, self._name)
        ended = [job for job in found if job.state is JobState.ENDED]
        self._left = [job.job_id for job in ended if not job.ending]
        jobs = [job for job in found if job.state is not JobState.ENDED]
        self._cancelled.keep_only(job.job_id for job in jobs)
        return jobs


def _number(job_id: str) -> str:
    """Return the id without the server's name, which PBS does not always write the same way."""
    return job_id.partition(".")[0]


def in_words(status: JobStatus) -> str:
    """Return a job's state as the scheduler names it, with its explanation."""
    native = status.native_state or "gone"
    return f"{native}, {status.explanation}" if status.explanation else native
