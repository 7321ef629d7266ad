"""Small clusters and jobs for tests of the arithmetic."""

from __future__ import annotations

from dataclasses import replace

from tunnelkit.diagnosis.codes.registry import CODES
from tunnelkit.diagnosis.evidence.cluster import (
    ClusterView,
    GpuCount,
    NodeView,
    PartitionView,
    QueuedJob,
    RunningJob,
    Window,
)
from tunnelkit.diagnosis.evidence.job import GpuNeed, JobView, NodeNeed, Shape
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.diagnosis.waiting.rules import judge_waiting
from tunnelkit.model import JobState

#: On a full minute.
NOW_S = 1_795_633_440.0
GB = 1 << 30


def node(
    name: str,
    *,
    cpus: int = 8,
    idle: int | None = None,
    gpus: int = 4,
    used: int = 0,
    mem_gb: int = 64,
    taken_gb: int = 0,
    states: str = "mixed",
    features: str = "",
    partition: str = "gpu",
    kind: str = "",
    reason: str = "",
) -> NodeView:
    """A node; idle: all of its CPUs unless said."""
    free = cpus if idle is None else idle
    return NodeView(
        name=name,
        partitions=frozenset({partition}),
        states=frozenset(states.split()),
        cpus=cpus,
        cpus_idle=free,
        mem_bytes=mem_gb * GB,
        mem_allocated_bytes=taken_gb * GB,
        gpus=(GpuCount(kind, gpus, used),) if gpus else (),
        features=frozenset(features.split()),
        reason=reason,
        reason_by="root" if reason else "",
        cpus_taken=cpus - free,
    )


def job(
    reason: str = "Resources",
    *,
    cpus: int = 1,
    gpus: int = 0,
    mem_gb: int = 0,
    features: str = "",
    limit_min: int | None = 60,
    shape: Shape | None = None,
    required: str = "",
    excluded: str = "",
) -> JobView:
    """A waiting job of kim's for one node, unless its shape says otherwise."""
    made = shape or Shape(
        cpus_per_task=cpus,
        node_cpus=cpus,
        mem_per_node_bytes=mem_gb * GB or None,
        gpus_per_node=(GpuNeed(gpus),) if gpus else (),
    )
    return JobView(
        job_id="50",
        state=JobState.PENDING,
        native_state="PENDING",
        reason=reason,
        name="train",
        user="kim",
        partition="gpu",
        priority=1000,
        submit_s=NOW_S - 600,
        eligible_s=NOW_S - 600,
        time_limit_s=None if limit_min is None else limit_min * 60,
        need=NodeNeed(features=features),
        required_nodes=tuple(required.split()),
        excluded_nodes=tuple(excluded.split()),
        command="/home/kim/train.sh",
        shape=made,
    )


def cluster(
    *nodes: NodeView,
    queue: tuple[QueuedJob, ...] = (),
    running: tuple[RunningJob, ...] = (),
    windows: tuple[Window, ...] = (),
    time_most_min: int | None = None,
) -> ClusterView:
    """A cluster of these nodes; its partitions are those of the nodes."""
    names = sorted({name for one in nodes for name in one.partitions})
    most_s = None if time_most_min is None else time_most_min * 60
    partitions = tuple(
        PartitionView(
            name,
            frozenset(one.name for one in nodes if name in one.partitions),
            time_most_s=most_s if name == "gpu" else None,
        )
        for name in names
    )
    return ClusterView(nodes, queue, running, windows=windows, partitions=partitions)


def ahead(
    job_id: str = "40", in_min: float | None = 20, nodes: str = "n1", reason: str = "Resources"
) -> QueuedJob:
    """A waiting job of higher priority, planned for some nodes."""
    start_s = None if in_min is None else NOW_S + in_min * 60
    return QueuedJob(job_id, "lee", 2000, reason, start_s, tuple(nodes.split()), ("gpu",))


def behind(job_id: str = "60") -> QueuedJob:
    """A waiting job of lower priority."""
    return replace(ahead(job_id, None, ""), priority=10)


def runs(job_id: str, nodes: str, *, until_min: float = 30, cpus: int = 8) -> RunningJob:
    """A running job of lee's."""
    return RunningJob(job_id, "lee", tuple(nodes.split()), NOW_S + until_min * 60, cpus)


def verdict(one: JobView, around: ClusterView) -> Verdict:
    """The only verdict on a waiting job."""
    [found] = judge_waiting(one, around, NOW_S)
    assert found.code in CODES
    return found


def lines(found: Verdict, label: str) -> list[str]:
    """The texts of the evidence under one label."""
    return [one.text for one in found.because if one.label == label]


def window(name: str, begins_min: float, *nodes: str, maintenance: bool = True) -> Window:
    """A reservation of an hour."""
    start_s = NOW_S + begins_min * 60
    return Window(name, start_s, start_s + 3600, nodes, maintenance)
