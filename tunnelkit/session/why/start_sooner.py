"""Shorten the time limit of a waiting job, so that it starts sooner and keeps its place."""

from __future__ import annotations

import secrets

from tunnelkit.errors import SchedulerError, UsageError
from tunnelkit.model import JobState
from tunnelkit.session.why.sources import WhySources


async def shorten(sources: WhySources, job_id: str, minutes: int) -> int | None:
    """Set the time limit; return what it was, in seconds, None for no limit.

    An owner may only shorten it; an administrator could lengthen it, so that is refused here.
    Raises UsageError for a limit that is not shorter, SchedulerError."""
    mark = f"tk-{secrets.token_hex(8)}"
    done = await sources.run(sources.inspector.inspect(job_id, mark))
    job = sources.inspector.parse(done, job_id, mark).job
    if job is None or job.state is not JobState.PENDING:
        state = "is not known to the scheduler" if job is None else f"is {job.native_state}"
        raise SchedulerError(
            f"job {job_id} {state}: there is no start to bring forward", hint=f"tk why {job_id}"
        )
    if minutes < 1 or (job.time_limit_s is not None and minutes * 60 >= job.time_limit_s):
        now = "no limit" if job.time_limit_s is None else f"{job.time_limit_s // 60} min"
        raise UsageError(
            f"{minutes} min is not shorter than the time limit of job {job_id}, {now}",
            hint=f"tk why {job_id} says which limit would start it now",
        )
    argv = sources.inspector.shorten(job.address, minutes)
    sources.inspector.parse_shorten(await sources.run(argv), job_id)
    return job.time_limit_s
