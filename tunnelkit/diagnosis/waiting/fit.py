"""Does a job fit: by node, against what each has when empty, and what is free of it now.

What the scheduler counts is counted here: CPUs, memory and GPUs that jobs were given, not what
programs use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import ClusterView, NodeView, Window
from tunnelkit.diagnosis.evidence.job import GpuNeed, JobView, Shape
from tunnelkit.diagnosis.waiting.features import Kind, kinds

#: A node in one of these states takes no job. "planned" is not among them: a shorter job may run.
CLOSED = frozenset(
    {
        *("down", "drain", "drained", "draining", "fail", "failing", "error", "future"),
        *("maint", "reserved", "resv", "not_responding", "no_respond", "perfctrs", "inval"),
        *("invalid_reg", "blocked", "power_down", "powering_down", "offline", "unknown"),
        *("state-unknown", "resv-exclusive", "maintenance", "stale", "provisioning"),
    }
)


@dataclass(frozen=True, slots=True)
class Room:
    """What a node has for a job: when empty, or what is free. shared: other jobs are on it."""

    cpus: int
    mem_bytes: int
    gpus: Mapping[str, int]
    shared: bool = False
    mem_shared: bool = False

    def gpus_of(self, kind: str) -> int:
        """Return the number of GPUs of a kind; "" for any."""
        return self.gpus.get(kind, 0) if kind else sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a node has less of than the job asks for. what: "CPUs", "memory", "GPUs"."""

    what: str
    asked: int
    has: int

    @property
    def share(self) -> float:
        """How much is missing, as a part of what is asked for."""
        return (self.asked - self.has) / max(1, self.asked)


@dataclass(frozen=True, slots=True)
class Miss:
    """A node that the job does not fit on now, and what it lacks; () if other jobs must go."""

    node: NodeView
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a job fits.

    nodes: those of its partitions. suitable: of these, with the features, and not excluded.
    ever: suitable ones that are large enough when empty. open: of these, those that take jobs.
    free: of these, those where it fits now. Each is about one node; fits_*: as many as the job
    needs are there together. misses: of open ones, the nearest first. readable: False if the
    expression of features can't be read: then none was left out for it.
    """

    nodes: tuple[NodeView, ...]
    suitable: tuple[NodeView, ...]
    ever: tuple[NodeView, ...]
    open: tuple[NodeView, ...]
    free: tuple[NodeView, ...]
    fits_ever: bool
    fits_open: bool
    fits_now: bool
    misses: tuple[Miss, ...]
    scattered: bool
    readable: bool = True


def empty_room(node: NodeView) -> Room:
    """Return all that a node has."""
    return Room(node.cpus, node.mem_bytes, {one.kind: one.total for one in node.gpus})


def free_room(node: NodeView) -> Room:
    """Return what jobs have left of a node."""
    return Room(
        node.cpus_idle,
        max(0, node.mem_bytes - node.mem_allocated_bytes),
        {one.kind: max(0, one.total - one.used) for one in node.gpus},
        shared=node.cpus_idle < node.cpus or node.mem_allocated_bytes > 0,
        mem_shared=node.mem_allocated_bytes > 0,
    )


def fit(job: JobView, cluster: ClusterView, now_s: float) -> Fit:
    """Return where the job fits. Needs nodes; windows of others make their nodes unusable."""
    shape = job.shape
    wanted = set(job.partition.split(","))
    nodes = tuple(one for one in cluster.nodes if one.partitions & wanted)
    excluded = set(job.excluded_nodes)
    ways = kinds(job.need.features)
    found = [
        _fit_kind(job, nodes, excluded, kind, _taken(job, cluster.windows, now_s))
        for kind in ways or kinds("") or ()
    ]
    best = max(found, key=lambda one: (one.fits_now, one.fits_open, one.fits_ever, len(one.ever)))
    suitable = tuple({one.name: one for each in found for one in each.suitable}.values())
    return Fit(
        nodes=nodes,
        suitable=suitable,
        ever=best.ever,
        open=best.open,
        free=best.free,
        fits_ever=best.fits_ever,
        fits_open=best.fits_open,
        fits_now=best.fits_now,
        misses=best.misses,
        scattered=not best.fits_now and best.fits_open and _is_scattered(shape, best.open),
        readable=ways is not None,
    )


def fits_on(job: JobView, nodes: Sequence[NodeView], room: Callable[[NodeView], Room]) -> bool:
    """True if the job fits on some of these nodes together. room: `free_room` or `empty_room`."""
    required = frozenset(job.required_nodes)
    return any(
        _together(job.shape, nodes, room, required, kind)
        for kind in kinds(job.need.features) or kinds("") or ()
    )


def _taken(job: JobView, windows: Iterable[Window], now_s: float) -> frozenset[str]:
    """Return the nodes that are reserved now for others."""
    return frozenset(
        node
        for window in windows
        if window.start_s <= now_s < window.end_s and window.name != job.reservation
        for node in window.nodes
    )


def _fit_kind(
    job: JobView,
    nodes: Sequence[NodeView],
    excluded: set[str],
    kind: Kind,
    taken: frozenset[str],
) -> Fit:
    shape = job.shape
    holds = _remembered(kind.holds)
    required = frozenset(job.required_nodes)
    only = bool(required) and len(required) >= shape.nodes_least
    suitable = tuple(
        one
        for one in nodes
        if one.name not in excluded and (not only or one.name in required) and holds(one.features)
    )
    ever = tuple(one for one in suitable if tasks_on(empty_room(one), shape))
    reserved = frozenset({"reserved", "resv", "maint"}) if job.reservation else frozenset()
    open_nodes = tuple(
        one for one in ever if not (one.states & CLOSED) - reserved and one.name not in taken
    )
    free = tuple(one for one in open_nodes if tasks_on(free_room(one), shape))

    def together(some: Sequence[NodeView], room: Callable[[NodeView], Room]) -> bool:
        return _together(shape, some, room, required, kind)

    fits_now = together(free, free_room)
    misses = () if fits_now else _misses(shape, open_nodes, free)
    return Fit(
        tuple(nodes),
        suitable,
        ever,
        open_nodes,
        free,
        together(ever, empty_room),
        together(open_nodes, empty_room),
        fits_now,
        misses,
        scattered=False,
    )


def _remembered(
    test: Callable[[frozenset[str]], bool],
) -> Callable[[frozenset[str]], bool]:
    """Return the test, asked once for each set of features: most nodes share a few."""
    known: dict[frozenset[str], bool] = {}

    def holds(features: frozenset[str]) -> bool:
        if features not in known:
            known[features] = test(features)
        return known[features]

    return holds


def tasks_on(room: Room, shape: Shape) -> int:
    """Return how many of the job's tasks fit there; 0 if a need of each node is not met."""
    if lacks(room, shape) or (shape.exclusive and room.shared):
        return 0
    if shape.all_memory and room.mem_shared:
        return 0
    count = room.cpus // max(1, shape.cpus_per_task)
    if shape.mem_per_cpu_bytes:
        count = min(count, room.mem_bytes // (shape.mem_per_cpu_bytes * shape.cpus_per_task))
    for one in shape.gpus_per_task:
        count = min(count, room.gpus_of(one.kind) // max(1, one.count))
    if shape.tasks_per_node:
        count = min(count, shape.tasks_per_node)
    return count


def lacks(room: Room, shape: Shape) -> tuple[Lack, ...]:
    """Return what the room has less of than each node of the job needs."""
    return tuple(one for one in needs(room, shape) if one.has < one.asked)


def needs(room: Room, shape: Shape) -> list[Lack]:
    """Return what each node of the job needs, with what the room has of it."""
    cpus = max(shape.node_cpus, shape.cpus_per_task)
    if shape.nodes_most == 1:
        cpus = max(cpus, shape.tasks * shape.cpus_per_task)
    memory = shape.mem_per_node_bytes or (shape.mem_per_cpu_bytes or 0) * cpus
    found = [Lack("CPUs", cpus, room.cpus)]
    if memory:
        found.append(Lack("memory", memory, room.mem_bytes))
    for one in gpus_on_node(shape):
        found.append(Lack(gpu_words(one.kind), one.count, room.gpus_of(one.kind)))
    return found


def gpu_words(kind: str) -> str:
    """Return "GPUs", with their kind if one is asked for."""
    return f"GPUs of type {kind}" if kind else "GPUs"


def gpus_on_node(shape: Shape) -> tuple[GpuNeed, ...]:
    """Return the GPUs that each node of the job needs at least."""
    if shape.gpus_per_node:
        return shape.gpus_per_node
    if shape.gpus_per_task:
        times = shape.tasks if shape.nodes_most == 1 else max(1, shape.tasks_per_node)
        return tuple(GpuNeed(one.count * times, one.kind) for one in shape.gpus_per_task)
    if shape.nodes_most == 1:
        return shape.gpus_total
    return tuple(GpuNeed(1, one.kind) for one in shape.gpus_total)


def _together(
    shape: Shape,
    nodes: Sequence[NodeView],
    room: Callable[[NodeView], Room],
    required: frozenset[str],
    kind: Kind,
) -> bool:
    """True if the job fits on some of these nodes, on each of which a part of it fits."""
    if len(nodes) < max(1, shape.nodes_least) or not required <= {one.name for one in nodes}:
        return False
    for holds, count in kind.counts:
        if sum(holds(one.features) for one in nodes) < count:
            return False
    rooms = [room(one) for one in nodes]
    most = shape.nodes_most or len(nodes)
    tasks = sorted((tasks_on(one, shape) for one in rooms), reverse=True)
    if sum(tasks[:most]) < shape.tasks:
        return False
    for need in shape.gpus_total:
        gpus = sorted((one.gpus_of(need.kind) for one in rooms), reverse=True)
        if sum(gpus[:most]) < need.count:
            return False
    return True


def _misses(shape: Shape, nodes: Sequence[NodeView], free: Sequence[NodeView]) -> tuple[Miss, ...]:
    """Return the nodes that don't fit now, the one that lacks least first; at most 100."""
    names = {one.name for one in free}
    found = [Miss(one, lacks(free_room(one), shape)) for one in nodes if one.name not in names]
    # One without a lack has other jobs beside it, which this job does not share nodes with.
    found.sort(key=lambda one: (sum(lack.share for lack in one.lacks) or 9.0, one.node.name))
    return tuple(found[:100])


def _is_scattered(shape: Shape, nodes: Sequence[NodeView]) -> bool:
    """True if enough is free in all, but not on one node, of a job that wants one."""
    if shape.nodes_most != 1 or shape.exclusive:
        return False
    rooms = [free_room(one) for one in nodes]
    total: dict[str, int] = {}
    for room in rooms:
        for one in needs(room, shape):
            total[one.what] = total.get(one.what, 0) + one.has
    asked = {one.what: one.asked for one in needs(rooms[0], shape)} if rooms else {}
    divided = any(0 < one.has < one.asked for room in rooms for one in needs(room, shape))
    return divided and all(total[what] >= count for what, count in asked.items())
