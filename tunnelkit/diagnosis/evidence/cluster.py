"""The cluster around a waiting job: nodes, queue, limits, windows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of one kind on a node. kind: "" if the scheduler names none."""

    kind: str
    total: int
    used: int = 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    cpus_taken: those that jobs have; the rest may be out of use.
    states: the scheduler's flags in lower case ("idle", "mixed", "drained", "down"). reason: an
    administrator's words for why it is out, with since_s and by whom.
    """

    name: str
    partitions: frozenset[str]
    states: frozenset[str]
    cpus: int
    cpus_idle: int
    mem_bytes: int
    mem_allocated_bytes: int
    gpus: tuple[GpuCount, ...] = ()
    features: frozenset[str] = frozenset()
    reason: str = ""
    reason_by: str = ""
    since_s: float | None = None
    cpus_taken: int = 0


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """Another waiting job. user: "" if hidden. elements: of a job array, those that wait."""

    job_id: str
    user: str
    priority: int | None
    reason: str
    expected_start_s: float | None = None
    expected_nodes: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    elements: int = 1


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has nodes. ends_s: when its time limit ends it. cpus: on all its nodes.
    partition, qos, account: "" if not known."""

    job_id: str
    user: str
    nodes: tuple[str, ...]
    ends_s: float | None = None
    cpus: int = 0
    partition: str = ""
    qos: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition or queue. tier: jobs of a higher one go first. None: no limit. qos: its own."""

    name: str
    nodes: frozenset[str]
    up: bool = True
    tier: int = 0
    time_most_s: int | None = None
    nodes_most: int | None = None
    nodes_least: int = 0
    qos: str = ""


@dataclass(frozen=True, slots=True)
class PriorityPart:
    """A part of a job's priority, such as its age."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on jobs together. owner: such as "QOS tiny". what: "gres/gpu", "jobs", "cpu".
    partition: whose own QOS it is of, for sure."""

    owner: str
    name: str
    what: str
    limit: float
    used: float
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A reservation. maintenance: nothing else runs on its nodes meanwhile. partial: it takes only
    some cores of its nodes. magnetic: jobs that may use it enter it unasked. users, accounts: those
    that may, empty if that is not known."""

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    maintenance: bool = False
    partial: bool = False
    magnetic: bool = False
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All that was asked about the cluster around one job.

    nodes, queue and running: of all partitions. missing: what did not answer, and why; its field
    is empty then, which says nothing. switched_off: the queue, or the scheduling of the whole
    server, if an administrator has switched it off.
    """

    nodes: tuple[NodeView, ...] = ()
    queue: tuple[QueuedJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    limits: tuple[Limit, ...] = ()
    windows: tuple[Window, ...] = ()
    missing: tuple[str, ...] = ()
    partitions: tuple[PartitionView, ...] = ()
    priority_parts: tuple[PriorityPart, ...] = ()
    switched_off: tuple[str, ...] = ()
