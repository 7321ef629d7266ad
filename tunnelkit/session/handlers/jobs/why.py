"""`tk why` through a session: by its link, about its job unless another is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tunnelkit.debug.rank_looks import look
from tunnelkit.diagnosis.evidence.stacks import StackView
from tunnelkit.diagnosis.verdict_json import DiagnosisInfo, to_json
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.session.agent.command_output import output_of
from tunnelkit.session.runtime.control_calls import Why
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session
from tunnelkit.session.why.diagnose import diagnose
from tunnelkit.session.why.running import Enter, by_scheduler, no_way_in
from tunnelkit.session.why.sources import WhySources, cluster_sources, no_inspector
from tunnelkit.session.why.stacks import debugged_stacks

#: From here on it is known which scheduler there is.
_KNOWN = (SessionState.PENDING, SessionState.STARTING)


async def why(session: Session, request: Why) -> DiagnosisInfo:
    """Return what is the matter. Raises SchedulerError, ConnectionFailed, UsageError."""
    await scheduler_known(session)
    job = session.cluster.job
    own = None if job is None else job.job_id
    scheduler = None if job is None else job.scheduler
    by_backend = session.cluster.setup.backend.diagnose
    if by_backend is not None:
        named = request.job or own
        return to_json(await by_backend(session.link, session.launch.settings, named))
    sources = replace(
        sources_of(session),
        enter=_way_in(session, scheduler),
        debugged=_debuggees(session),
    )
    found = await diagnose(sources, request.job or own, sample_s=request.sample, log=request.log)
    return to_json(found)


async def scheduler_known(session: Session) -> None:
    """Wait until a session that starts knows its cluster's scheduler. Raises TunnelkitError."""
    while session.cluster.job is None:
        session.states.check()
        if session.settled.is_set() or session.states.state in _KNOWN:
            return
        if session.stuck is not None:
            raise session.stuck
        await session.states.wait_change()


def sources_of(session: Session) -> WhySources:
    """Return the session's login host as a source; after `scheduler_known`.

    Raises SchedulerError without a scheduler."""
    found = cluster_sources(session.cluster)
    if found is None:
        raise no_inspector(session.link.name)
    return found


def is_own(session: Session, job_id: str) -> bool:
    """Return True for the session's own job, by its id or by the one for steps."""
    job = session.cluster.job
    return job is not None and job_id in (job.job_id, session.cluster.allocated.step_id)


def _way_in(session: Session, scheduler: Scheduler | None) -> Enter | None:
    """Return the way into jobs: by the agents into the session's own, else by the scheduler."""
    by_step = None if scheduler is None else by_scheduler(scheduler, session.link)

    async def enter(
        job_id: str, node: str, argv: Sequence[str], *, stdin: bytes, timeout_s: float
    ) -> bytes:
        if is_own(session, job_id):
            agent = await session.agents.on(node)
            return await output_of(agent, argv, timeout_s=timeout_s, stdin=stdin)
        if by_step is None:
            raise no_way_in(node)
        return await by_step(job_id, node, argv, stdin=stdin, timeout_s=timeout_s)

    return enter


def _debuggees(session: Session) -> Callable[[str], Awaitable[tuple[StackView, ...]]]:
    """Return what asks the debuggees of the session's loops and attachments, for its own job."""

    async def ask(job_id: str) -> tuple[StackView, ...]:
        if not is_own(session, job_id):
            return ()
        runs = [run for one in session.loops.all() if (run := one.loop.first()) is not None]
        found = await asyncio.gather(*(look(run.targets) for run in runs))
        samples = [sample for some in found for sample in some]
        return debugged_stacks(samples, "the session's debugger")

    return ask
