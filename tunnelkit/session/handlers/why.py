"""`tk why` through a session: by its link, about its job unless another is named."""

from __future__ import annotations

from tunnelkit.diagnosis.verdict_json import DiagnosisInfo, to_json
from tunnelkit.session.runtime.control_calls import Why
from tunnelkit.session.session import Session
from tunnelkit.session.why.diagnose import diagnose
from tunnelkit.session.why.sources import WhySources, cluster_sources, no_inspector


async def why(session: Session, request: Why) -> DiagnosisInfo:
    """Return what is the matter. Raises SchedulerError, ConnectionFailed, UsageError."""
    job = session.cluster.job
    own = None if job is None else job.job_id
    return to_json(await diagnose(sources_of(session), request.job or own))


def sources_of(session: Session) -> WhySources:
    """Return the session's login host as a source. Raises SchedulerError without a scheduler."""
    found = cluster_sources(session.cluster)
    if found is None:
        raise no_inspector(session.link.name)
    return found
