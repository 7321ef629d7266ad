"""The whole session as one JSON object, for `tk status --json`."""

from __future__ import annotations

import os

from tunnelkit import __version__
from tunnelkit.session.files import mirror_json
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.runtime.status import JobInfo, SessionStatus
from tunnelkit.session.session import Session


def status_of(session: Session, *, closing: bool) -> SessionStatus:
    """Return the status. closing: `tk down` was called; the session's state follows later."""
    mirrors, cluster, states = session.files.mirrors, session.cluster, session.states
    return {
        "version": __version__,
        "state": SessionState.CLOSING if closing else states.state,
        "detail": states.detail,
        "failure": states.failure.to_json() if states.failure is not None else None,
        "attention": session.stuck.one_line() if session.stuck is not None else None,
        "since": states.since,
        "pid": os.getpid(),
        "project": str(session.launch.settings.project_dir),
        "login": session.link.name,
        "wanted_node": session.record.node,
        "scheduler": cluster.job.scheduler.name if cluster.job is not None else "none",
        "job": _job(session),
        "node": _node(session),
        "other_nodes": session.agents.peers.describe(),
        "route": cluster.allocated.route,
        "agent": session.agents.info or None,
        "mirror": mirror_json.describe(mirrors.project) if mirrors is not None else None,
        "mirrors": mirrors.describe() if mirrors is not None else [],
        "debug_port": session.editor_port.port,
        "loops": [loop.loop.describe() for loop in session.loops.all()],
        "forwards": session.forwards.list(),
        "mounts": session.files.mounts.describe(),
        "events": list(session.events.recent),
    }


def _job(session: Session) -> JobInfo | None:
    cluster, pending = session.cluster, session.waiting.status
    if cluster.job is None or cluster.job.job_id is None:
        return None
    return {
        "id": cluster.job.job_id,
        "adopted": cluster.adopted,
        "made_by": "you" if session.launch.attach_job is not None else "tk",
        "requeues": session.comeback.count,
        "nodes": list(cluster.allocated.nodes),
        "time_left_s": session.time_limit.left_s,
        "time_is_near": session.time_limit.warned,
        "pending_reason": pending.reason if pending is not None else None,
        "start_estimate": pending.start_estimate if pending is not None else None,
    }


def _node(session: Session) -> str | None:
    """Return the agent's node, with the scheduler's name for it if there is one."""
    if not session.agents.info:
        return None
    return session.cluster.node if session.cluster.job is not None else session.agents.node
