"""Answers and notices of the session to commands: JSON objects, as `--json` prints them.

Imported for type checking only: a command that starts fast does not build these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, final

from tunnelkit.debug.loop_status import InterruptStatus
from tunnelkit.debug.ranks.sample_json import SampleInfo
from tunnelkit.errors import ErrorInfo
from tunnelkit.mirror.progress import ProgressInfo
from tunnelkit.session.runtime.status import MirrorStateInfo


class DownAnswer(TypedDict):
    """goes_on: the user's own job, which stays. job: the session's job."""

    goes_on: str | None
    job: str | None


class ShortenAnswer(TypedDict):
    """A waiting job's new time limit. was_s: the limit before; None for no limit."""

    job: str
    minutes: int
    was_s: int | None


class ReportInfo(TypedDict):
    """One round of the mirror.

    kept, replaced: paths that were changed on the cluster. replaced_dir: where the versions that
    gave way are. proven: number of files that the node has read back.
    """

    sent: int
    sent_bytes: int
    deleted: int
    kept: list[str]
    replaced: list[str]
    replaced_dir: str | None
    proven: int
    duration_s: float


class SyncAnswer(ReportInfo):
    """unproven: why no compute node has read the files back; None if one has."""

    unproven: str | None
    warnings: list[str]


class ResolveAnswer(ReportInfo):
    """conflicts: those that are left."""

    conflicts: list[str]
    warnings: list[str]


class RuleInfo(TypedDict):
    """The line of an ignore file, or of tk's own rules, that decided."""

    source: str
    line: int | None
    pattern: str


class ExplainAnswer(TypedDict):
    """The reason why a path is mirrored or not; see mirror/explain.py."""

    path: str
    mirrored: bool
    kind: str
    reason: str
    rule: RuleInfo | None
    exists: bool
    state: str | None
    state_reason: str | None
    proven: bool
    remote: str | None


class PullAnswer(TypedDict):
    """The paths that were fetched, and the paths that were not; see mirror/pull.py."""

    pulled: list[str]
    bytes: int
    kept: list[str]
    owned: list[str]
    mirrored: list[str]
    refused: list[str]
    unread: list[str]
    gone: list[str]
    uncompared: list[str]
    duration_s: float


class ForwardAnswer(TypedDict):
    """listening: a server listens at the node's port. ready: and it accepts from here."""

    forward: str
    route: str
    shared: bool
    listening: bool
    ready: bool


class ReadyAnswer(TypedDict):
    """generation: the armed run. port: where F5 goes. sync: the barrier's report, if asked for."""

    generation: int
    port: int
    sync: SyncAnswer | None


class ProcessInfo(TypedDict):
    """A process to which a debugger can attach. launcher: it only starts ranks."""

    pid: int
    rank: int | None
    node: str
    command: list[str]
    launcher: bool


@final
class AttachedAnswer(TypedDict):
    """attached: the pid. ready: False while it is in native code. again: it was attached before.
    risk: what may end it at a breakpoint; "" for nothing.
    """

    attached: int
    node: str
    loop: int
    port: int
    rank: int | None
    command: list[str]
    ready: bool
    again: bool
    risk: str


@final
class ChoicesAnswer(TypedDict):
    """Several processes match."""

    choices: list[ProcessInfo]


class FailedAttach(TypedDict):
    """A selected rank that can't be attached to."""

    rank: int | None
    node: str
    pid: int
    failure: ErrorInfo


@final
class AttachedRanksAnswer(TypedDict):
    """The ranks of a selection, by their numbers."""

    ranks: list[AttachedAnswer]
    failed: list[FailedAttach]


AttachAnswer = AttachedAnswer | ChoicesAnswer | AttachedRanksAnswer


class RootInfo(TypedDict):
    """A mirrored directory: on the laptop, and on the cluster."""

    local: str
    remote: str


class LookInfo(TypedDict):
    """All ranks at one time. time_s: of a clock that only counts on. took_s: for the answers."""

    time_s: float
    took_s: float
    samples: list[SampleInfo]


class RanksAnswer(TypedDict):
    """The ranks of a loop's run, or of a program without a debugger (loop and generation are 0).

    world_size: 0 if unknown. absent: ranks to debug that have not dialled in. looks: one or two;
    such a rank has no sample. still_s: for how long a rank has not moved, as far as tk has looked,
    by rank. notes: what could not be asked, and why.
    """

    loop: int
    command: str
    generation: int
    world_size: int
    absent: list[int]
    looks: list[LookInfo]
    roots: list[RootInfo]
    still_s: dict[str, float]
    notes: list[str]


class InterruptAnswer(TypedDict):
    """The processes of the loop that were to pause."""

    loop: int
    processes: list[InterruptStatus]


class RunAnswer(TypedDict):
    """A command that has ended. stdout, stderr: in base64."""

    exit_code: int
    stdout: str
    stderr: str


class StreamEnd(TypedDict, total=False):
    """The end of a stream. code, signal: of its process. error: the stream broke off.

    oom_kills: processes that the kernel killed for memory meanwhile, in the whole job or pod."""

    failure: ErrorInfo
    error: str
    code: int | None
    signal: str | None
    oom_kills: int


class SayNotice(TypedDict):
    """A message for the user."""

    text: str


class StateNotice(TypedDict):
    """The session entered a `SessionState`."""

    state: str
    detail: str


#: A `ProgressInfo`, or {} at the end.
Progress = ProgressInfo | Mapping[str, object]


class MirrorStateEvent(MirrorStateInfo):
    """A mirror entered a state. root, node: as in `MirrorInfo`. time: Unix time."""

    event: Literal["state"]
    root: str
    node: str | None
    time: float


class MirrorBatchEvent(TypedDict):
    """A pass changed something on the cluster; see mirror/progress.py."""

    event: Literal["batch"]
    root: str
    node: str | None
    time: float
    files: int
    bytes: int
    deleted: int
    duration_s: float
    paths: list[str]


class MirrorWarningEvent(TypedDict):
    """A warning before something big is sent."""

    event: Literal["warning"]
    time: float
    text: str


MirrorEvent = MirrorStateEvent | MirrorBatchEvent | MirrorWarningEvent


class SubmitAnswer(TypedDict):
    """A submitted job. directory: where sbatch ran. said: what it wrote on stderr."""

    job: str
    cluster: str
    directory: str
    said: str


class StandingProgram(TypedDict):
    """A program that stands at the exception that it dies of. where: FILE:LINE."""

    node: str | None
    pid: float | None
    rank: float | None
    error: str | None
    where: str | None


class KeptJob(TypedDict):
    """A job that stays after its script failed, or while programs of it stand at an exception.

    array: ID_INDEX of an array's element. cluster: its name, if it is known. until_s: when it is
    let go at the latest; limit_s: its time limit; both as epoch seconds. idle_s: let go after so
    long without anybody. answered: the number of the last request. comment: the job's, if nothing
    else is known of it.
    """

    job: str
    array: str | None
    cluster: str | None
    name: str | None
    node: str | None
    code: float | None
    signal: float | None
    since_s: float | None
    until_s: float | None
    limit_s: float | None
    idle_s: float | None
    gpus: float | None
    cpus: float | None
    attached: bool
    answered: str | None
    standing: list[StandingProgram]
    comment: str | None
