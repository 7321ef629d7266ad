"""What became of a job whose agent is gone: it ended, and why, or it went back into the queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import Completed, JobState, JobStatus
from tunnelkit.scheduler.base import Command
from tunnelkit.session.job.job import in_words

#: A job whose agent is gone is mostly just ending: how long the scheduler is asked.
_ASK_END_S = 15.0
#: Its last state is waited for so long; then it is told as ending.
_SETTLE_S = 4.0
#: One that may come back: so long until it is said to do so (Slurm's KillWait and more).
_CLEARING_S = 45.0

Run = Callable[[Command], Awaitable[Completed]]


@dataclass(frozen=True)
class JobOutcome:
    """ended: why the job is over, None if it isn't known to be. back: it waits in the queue
    again, or runs again."""

    ended: str | None = None
    back: bool = False


@runtime_checkable
class NamesCanceller(Protocol):
    """A scheduler that may know who cancelled a job."""

    def canceller(self, job_id: str) -> Command | None: ...

    def parse_canceller(self, done: Completed) -> int | None: ...


async def wait_job_outcome(states: AsyncGenerator[JobStatus], *, may_come_back: bool) -> JobOutcome:
    """Look until it is known, but not for long. `states` is closed. may_come_back: it was
    submitted so that it may be put back into the queue."""
    known = JobOutcome()
    first_s: float | None = None
    now = asyncio.get_running_loop().time
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ASK_END_S) as limit, contextlib.aclosing(states):
            async for status in states:
                if status.state is JobState.ENDED:
                    known = JobOutcome(ended=f"job {status.job_id}: {in_words(status)}")
                    if not status.ending:
                        return known
                    first_s = now() if first_s is None else first_s
                    limit.reschedule(first_s + _SETTLE_S)
                elif status.state is JobState.PENDING and not status.ending:
                    return JobOutcome(back=may_come_back)
                elif status.state is JobState.RUNNING and status.time_left_s == 0:
                    # PBS calls it running for as long as its node takes to kill it all.
                    known = JobOutcome(ended=f"job {status.job_id}: the job reached its time limit")
                    first_s = now() if first_s is None else first_s
                    limit.reschedule(first_s + _SETTLE_S)
                elif status.ending:
                    first_s = now() if first_s is None else first_s
                    limit.reschedule(first_s + _CLEARING_S)
    # It may have come back before anybody looked (the laptop slept), or its holder is just
    # ending: an agent of it is looked for.
    return known if known.ended else JobOutcome(back=may_come_back)


async def who_cancelled(scheduler: object, run: Run, status: JobStatus) -> str | None:
    """Who cancelled the job, in words; None where nobody can tell."""
    if not isinstance(scheduler, NamesCanceller) or not status.native_state.startswith("CANCELLED"):
        return None
    command = scheduler.canceller(status.job_id)
    if command is None:
        return None
    with contextlib.suppress(TunnelkitError):
        uid = scheduler.parse_canceller(await run(command))
        if uid is not None:
            asked = await run(Command(("sh", "-c", 'id -u; id -nu -- "$1"', "sh", str(uid))))
            own, *name = asked.text.split()
            return "by yourself" if own == str(uid) else f"by {name[0] if name else f'uid {uid}'}"
    return None
