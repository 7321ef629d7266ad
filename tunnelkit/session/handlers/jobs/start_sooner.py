"""`tk why --start-sooner` through a session: by its link."""

from __future__ import annotations

from tunnelkit.session.handlers.jobs.why import scheduler_known, sources_of
from tunnelkit.session.runtime.control_answers import ShortenAnswer
from tunnelkit.session.runtime.control_calls import Shorten
from tunnelkit.session.session import Session
from tunnelkit.session.why.start_sooner import shorten


async def shorten_limit(session: Session, request: Shorten) -> ShortenAnswer:
    """Shorten a waiting job's time limit. Raises SchedulerError, UsageError."""
    await scheduler_known(session)
    was_s = await shorten(sources_of(session), request.job, request.minutes)
    if session.cluster.job is not None:
        session.cluster.job.poke()
    return {"job": request.job, "minutes": request.minutes, "was_s": was_s}
