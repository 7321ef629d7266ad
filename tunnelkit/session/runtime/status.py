"""The status of a session as its control socket gives it and `tk status --json` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from tunnelkit.errors import ErrorInfo
from tunnelkit.session.runtime.event_log import SessionEvent

if TYPE_CHECKING:
    from tunnelkit.debug.loop_status import LoopStatus
    from tunnelkit.mirror.progress import ProgressInfo
    from tunnelkit.mount.mounts import MountStatus


class JobInfo(TypedDict):
    """The job that holds the allocation.

    adopted: the session found the job instead of submitting it. made_by: "you" if the user
    submitted it without tk, else "tk". requeues: how often it went back into the queue, or
    the session went on in the place of a pod that was lost.
    pending_reason, start_estimate: as the scheduler reports them while the job waits.
    """

    id: str
    adopted: bool
    made_by: str
    requeues: int
    nodes: list[str]
    time_left_s: int | None
    time_is_near: bool
    pending_reason: str | None
    start_estimate: str | None


class NodeAgentInfo(TypedDict):
    """Another node of the allocation. agent: its agent's pid, None if it has none. why_not: why
    it has none, or can't be reached."""

    node: str
    agent: int | None
    why_not: str | None


class MirrorStateInfo(TypedDict):
    """The state of one mirror. since: Unix time. pending, conflicts: paths relative to the root."""

    state: str
    text: str
    since: float
    reason: str | None
    files: int
    bytes: int
    pending: int
    pending_paths: list[str]
    conflicts: list[str]


class MirrorInfo(MirrorStateInfo):
    """One mirror. root: its name in the configuration, "" for the project's own directory.

    node: the pod that has these files; None for the first one, and where nodes share them.
    """

    root: str
    node: str | None
    local: str
    remote: str
    watching: bool
    warnings: list[str]
    progress: ProgressInfo | None


class ForwardInfo(TypedDict):
    """One forward. route: how its bytes reach the node; `lost` while it is not in place.
    shared: open to other users."""

    forward: str
    route: str
    shared: bool


class SessionStatus(TypedDict):
    """The whole session.

    version: of the tk that started the session. state: a `SessionState`. attention: why the
    session needs the user (`tk auth`), or None. failure: the error that ended the session, or
    None. since: Unix time of the last change of state. node: the agent's node. agent: the
    agent's answer to `info`. mirror: the project's own; mirrors: all, worst first. events: the
    last ones, the oldest first.
    """

    version: str
    state: str
    detail: str
    attention: str | None
    failure: ErrorInfo | None
    since: float
    pid: int
    project: str
    login: str
    wanted_node: str | None
    scheduler: str
    job: JobInfo | None
    node: str | None
    other_nodes: list[NodeAgentInfo]
    route: str | None
    agent: Mapping[str, object] | None
    mirror: MirrorInfo | None
    mirrors: list[MirrorInfo]
    debug_port: int
    loops: list[LoopStatus]
    forwards: list[ForwardInfo]
    mounts: list[MountStatus]
    events: list[SessionEvent]
