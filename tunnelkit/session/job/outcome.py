"""Outcome of a job whose agent is gone: it ended (and why), or it went back into the queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import Completed, JobState, JobStatus, LostNode, job_words
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.session.job.job import in_words

#: Limit for the queries: a job whose agent is gone is usually ending at that moment.
_ASK_END_S = 15.0
#: Limit for the final state after the first sign of the end; then the job is reported as ending.
_SETTLE_S = 4.0
#: Limit for a job that is ending and may be requeued (Slurm's KillWait and more).
_CLEARING_S = 45.0

Run = Callable[[Command], Awaitable[Completed]]


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of a job.

    ended: why the job is over; None if it isn't known to be over.
    back: True if the job waits in the queue again, or may run again.
    gone: the node that the job has lost, if another one is expected in its place.
    last: the job's last state, if it is known already."""

    ended: str | None = None
    back: bool = False
    gone: LostNode | None = None
    last: JobStatus | None = field(default=None, compare=False)


def outcome_of(gone: LostNode) -> JobOutcome:
    """Return the outcome for a session whose node is lost, though its job may go on."""
    if gone.returns:
        return JobOutcome(back=True, gone=gone)
    return JobOutcome(ended=f"{gone.name}: {gone.why}")


async def wait_job_outcome(
    states: AsyncGenerator[JobStatus],
    *,
    may_come_back: bool,
    lost: Callable[[JobStatus], LostNode | None] = lambda status: None,
) -> JobOutcome:
    """Follow the job's states until its outcome is known, within the limits above.

    states: the job's states from the scheduler; closed at the end.
    may_come_back: True if the job was submitted as one that may be requeued.
    lost: returns the session's own node if the job has lost it."""
    known = JobOutcome()
    first_s: float | None = None
    now = asyncio.get_running_loop().time
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ASK_END_S) as limit, contextlib.aclosing(states):
            async for status in states:
                if (gone := lost(status)) is not None:
                    return outcome_of(gone)
                if status.state is JobState.ENDED:
                    ended = f"{job_words(status.job_id)}: {in_words(status)}"
                    known = JobOutcome(ended, last=None if status.ending else status)
                    if not status.ending:
                        return known
                    first_s = now() if first_s is None else first_s
                    limit.reschedule(first_s + _SETTLE_S)
                elif status.state is JobState.PENDING and not status.ending:
                    return JobOutcome(back=may_come_back)
                elif status.state is JobState.RUNNING and status.time_left_s == 0:
                    # PBS reports the job as running until its node has killed all processes.
                    known = JobOutcome(
                        ended=f"{job_words(status.job_id)}: the job reached its time limit"
                    )
                    first_s = now() if first_s is None else first_s
                    limit.reschedule(first_s + _SETTLE_S)
                elif status.ending:
                    first_s = now() if first_s is None else first_s
                    limit.reschedule(first_s + _CLEARING_S)
    # Unknown: the job may have come back before the first query (the laptop slept), or its holder
    # is just ending. With `back` the session looks for its agent.
    return known if known.ended else JobOutcome(back=may_come_back)


async def describe_end(
    scheduler: Scheduler, run: Run, status: JobStatus, verdict: str | None = None
) -> str:
    """Return in plain words how the job ended. verdict: what is known beyond its state."""
    if verdict is not None:
        why = f"`tk why {status.job_id}` says more"
        return f"{job_words(status.job_id)}: {status.native_state}, {verdict}; {why}"
    who = await who_cancelled(scheduler, run, status)
    return f"{job_words(status.job_id)}: {in_words(status)}" + (f" ({who})" if who else "")


async def who_cancelled(scheduler: Scheduler, run: Run, status: JobStatus) -> str | None:
    """Return in words who cancelled the job; None if the scheduler does not report it."""
    if not status.native_state.startswith("CANCELLED"):
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
