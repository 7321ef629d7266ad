"""Frozen data types; their words are those of ssh_config, Slurm, PBS and DAP."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from tunnelkit.errors import UsageError

_DESTINATION = re.compile(r"[A-Za-z0-9_.%+@:\[\]~-]+")
_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_JOB_ID = re.compile(r"[0-9][A-Za-z0-9.-]*")
_JOB_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_destination(text: str) -> str:
    """Return `text` if ssh may be given it as a destination; raise UsageError if not.

    A leading `-` would be read by ssh as an option (`-oProxyCommand=...` runs a
    program), so it is refused before any argv is built.
    """
    if not text or text.startswith("-") or not _DESTINATION.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a host name",
            hint="give host, user@host or an alias from your ssh_config",
        )
    return text


def check_host(text: str) -> str:
    """Return `text` if it is a plain host or node name; raise UsageError if not."""
    if not text or text.startswith(("-", ".")) or not _HOST.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a node name",
            hint="a name holds letters, digits, '.', '_', ':' and '-'",
        )
    return text


def check_port(value: int | str, *, what: str = "port") -> int:
    """Return `value` as a TCP port, 1 to 65535; raise UsageError if it is none."""
    try:
        port = int(value)
    except ValueError:
        port = 0
    if not 1 <= port <= 65535:
        raise UsageError(
            f"{what} {value!r} is not a TCP port", hint="give a number from 1 to 65535"
        )
    return port


def check_job_name(text: str) -> str:
    """Return `text` if it may stand as a job name; raise UsageError if not.

    The strict alphabet keeps newlines and quotes out of `#SBATCH` lines.
    """
    if not _JOB_NAME.fullmatch(text):
        raise UsageError(
            f"job name {text!r} may only hold letters, digits, '_', '.' and '-' (at most 64)",
            hint="choose such a name",
        )
    return text


def check_job_id(text: str) -> str:
    """Return `text` if it can be a scheduler's job id; raise UsageError if not."""
    if not _JOB_ID.fullmatch(text):
        raise UsageError(
            f"{text!r} is not the id of a single job",
            hint="give it as squeue or qstat shows it, such as 4711; not an array's element",
        )
    return text


@dataclass(frozen=True, slots=True)
class Hop:
    """One ssh destination on the way: an ssh_config alias, host or user@host."""

    destination: str

    def __post_init__(self) -> None:
        check_destination(self.destination)

    def __str__(self) -> str:
        return self.destination


@dataclass(frozen=True, slots=True)
class LocalForward:
    """127.0.0.1:`bind_port` on the laptop reaches `host`:`port` as the node sees it.

    shared: other users of the laptop may use it."""

    bind_port: int
    host: str
    port: int
    shared: bool = False

    def __post_init__(self) -> None:
        check_port(self.bind_port, what="local port")
        check_host(self.host)
        check_port(self.port, what="remote port")

    @staticmethod
    def parse(text: str) -> LocalForward:
        """Read `PORT`, `L:R` or `L:host:R`; raise UsageError on anything else."""
        parts = text.split(":")
        if len(parts) == 1:
            port = check_port(parts[0])
            return LocalForward(port, "127.0.0.1", port)
        if len(parts) == 2:
            return LocalForward(check_port(parts[0]), "127.0.0.1", check_port(parts[1]))
        if len(parts) == 3:
            return LocalForward(check_port(parts[0]), check_host(parts[1]), check_port(parts[2]))
        raise UsageError(f"{text!r} is not a forward", hint="write PORT, L:R or L:host:R")

    def __str__(self) -> str:
        return f"{self.bind_port}:{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished remote command: exit status (ssh's own failure is 255) and its output."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """stderr as text, without white space around it."""
        return self.stderr.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """The resources requested from the scheduler. None: the scheduler's default.

    exclusive: no other job on the nodes. requeue: the job goes back into the queue when it is
    preempted or its node fails, instead of ending.
    """

    node: str | None = None
    nodes: int = 1
    gpus: int | None = None
    cpus: int | None = None
    mem: str | None = None
    time_limit_s: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclusive: bool = False
    requeue: bool = False
    extra: tuple[str, ...] = ()


class JobState(Enum):
    """A job's life as tk needs it; native states map onto these in each adapter.

    UNKNOWN means that the scheduler does not answer or the record has vanished. It
    never means ENDED.
    """

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node that a job has lost with all that ran there, though the job may go on.

    instance: which of those that had this name, one after the other. why: in plain words. returns:
    another one is expected in its place."""

    name: str
    instance: str
    why: str
    returns: bool = True


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job as the scheduler last reported it.

    reason: the native reason code or comment. explanation: the same in plain words.
    start_estimate: the scheduler's own text, times without zone. ending: the job's processes
    are being ended, and its native state is not the last one. instances: of `nodes`, in their
    order, where nodes are replaced; else empty. addresses: of `nodes`, where the scheduler knows
    them; else empty. risks: of `nodes`, why a
    breakpoint may end what runs there by itself; "" for nothing. lost: nodes that the job had,
    oldest first. raw_id: the number of an array's element by itself; "" if job_id is it.
    partitions: those that a Slurm job may run in.
    """

    job_id: str
    state: JobState
    native_state: str
    reason: str | None = None
    explanation: str | None = None
    nodes: tuple[str, ...] = ()
    time_left_s: int | None = None
    start_estimate: str | None = None
    ending: bool = False
    instances: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    lost: tuple[LostNode, ...] = ()
    raw_id: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def step_id(self) -> str:
        """The id by which steps are started in the job."""
        return self.raw_id or self.job_id


def job_words(job_id: str) -> str:
    """Return a job's id for a sentence: that of pods has their kind in it."""
    return job_id if "/" in job_id or job_id.startswith("-l ") else f"job {job_id}"


@dataclass(frozen=True, slots=True)
class PathMapping:
    """A directory on the laptop and the same directory as the debuggee sees it."""

    local_root: str
    remote_root: str


@dataclass(frozen=True, slots=True)
class MirrorSpec:
    """One mirrored root.

    remote_dir: may start with `~/`. excludes: gitignore lines. delete_limit: more deletions at once
    halt the mirror. symlinks: "keep" sends them as they are, "ignore" leaves them out. name: its
    name among several roots, "" for the project's own directory. guarded: a project's file set
    remote_dir, which must not be in a dot directory of the remote home."""

    local_dir: str
    remote_dir: str
    exclude: tuple[str, ...] = field(default=())
    delete_limit: int = 200
    symlinks: str = "keep"
    name: str = ""
    guarded: bool = False
