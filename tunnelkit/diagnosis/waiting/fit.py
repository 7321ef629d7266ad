"""The nodes that a job fits on: empty ones, those that take jobs, and what is free now."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import ClusterView, NodeView, Window
from tunnelkit.diagnosis.evidence.job import JobView, Shape
from tunnelkit.diagnosis.waiting.backfill import own_windows
from tunnelkit.diagnosis.waiting.features import Kind, kinds
from tunnelkit.diagnosis.waiting.room import Lack, RoomFor, empty_room, free_room

#: A node in one of these states takes no job. "planned" is not among them: a shorter job may run.
CLOSED = frozenset(
    {
        *("down", "drain", "drained", "draining", "fail", "failing", "error", "future"),
        *("maint", "reserved", "resv", "not_responding", "no_respond", "perfctrs", "inval"),
        *("invalid_reg", "blocked", "power_down", "powering_down", "offline", "unknown"),
        *("state-unknown", "resv-exclusive", "maintenance", "stale", "provisioning"),
    }
)


_RESERVED = frozenset({"reserved", "resv", "maint"})


@dataclass(frozen=True, slots=True)
class Miss:
    """A node that the job does not fit on now, and what it lacks; () if other jobs must go."""

    node: NodeView
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """The nodes that a job fits on.

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


def fit(job: JobView, cluster: ClusterView, now_s: float) -> Fit:
    """Return where the job fits. Needs nodes; windows of others make their nodes unusable."""
    shape = job.shape
    wanted = set(job.partition.split(","))
    nodes = tuple(one for one in cluster.nodes if one.partitions & wanted)
    excluded = set(job.excluded_nodes)
    ways = kinds(job.need.features)
    others = own_windows(job, cluster)
    taken = _nodes_of(others, now_s)
    shared = _nodes_of([one for one in cluster.windows if one not in others], now_s) - taken
    found = [
        _fit_kind(job, nodes, excluded, kind, taken, shared) for kind in ways or kinds("") or ()
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


def fits_on(job: JobView, nodes: Sequence[NodeView], room: RoomFor) -> bool:
    """True if the job fits on some of these nodes together."""
    required = frozenset(job.required_nodes)
    return any(
        _together(nodes, room, required, kind)
        for kind in kinds(job.need.features) or kinds("") or ()
    )


def _nodes_of(windows: Iterable[Window], now_s: float) -> frozenset[str]:
    """Return the nodes that are reserved now."""
    return frozenset(
        node
        for window in windows
        if window.start_s <= now_s < window.end_s
        for node in window.nodes
    )


def _fit_kind(
    job: JobView,
    nodes: Sequence[NodeView],
    excluded: set[str],
    kind: Kind,
    taken: frozenset[str],
    shared: frozenset[str],
) -> Fit:
    """taken: nodes that are reserved now for others. shared: that reservations have, and the job
    may use."""
    empty, free_now = RoomFor(job.shape, empty_room), RoomFor(job.shape, free_room)
    shape = job.shape
    holds = _remembered(kind.holds)
    required = frozenset(job.required_nodes)
    only = bool(required) and len(required) >= shape.nodes_least
    suitable = tuple(
        one
        for one in nodes
        if one.name not in excluded and (not only or one.name in required) and holds(one.features)
    )
    ever = tuple(one for one in suitable if empty.tasks(one))

    def is_open(one: NodeView) -> bool:
        states = one.states & CLOSED
        if job.reservation or one.name in shared:
            states -= _RESERVED
        return not states and one.name not in taken

    open_nodes = tuple(one for one in ever if is_open(one))
    free = tuple(one for one in open_nodes if free_now.tasks(one))

    def together(some: Sequence[NodeView], room: RoomFor) -> bool:
        return _together(some, room, required, kind)

    fits_now = together(free, free_now)
    misses = () if fits_now else _misses(open_nodes, free, free_now)
    return Fit(
        tuple(nodes),
        suitable,
        ever,
        open_nodes,
        free,
        together(ever, empty),
        together(open_nodes, empty),
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


def _together(
    nodes: Sequence[NodeView], room: RoomFor, required: frozenset[str], kind: Kind
) -> bool:
    """True if the job fits on some of these nodes, on each of which a part of it fits."""
    shape = room.shape
    if len(nodes) < max(1, shape.nodes_least) or not required <= {one.name for one in nodes}:
        return False
    for holds, count in kind.counts:
        if sum(holds(one.features) for one in nodes) < count:
            return False
    most = shape.nodes_most or len(nodes)
    if _largest_sum((room.tasks(one) for one in nodes), most) < shape.tasks:
        return False
    return all(
        _largest_sum((room.gpus(one, need.kind) for one in nodes), most) >= need.count
        for need in shape.gpus_total
    )


def _largest_sum(values: Iterable[int], most: int) -> int:
    return sum(heapq.nlargest(most, values)) if most > 1 else max(values, default=0)


def _misses(nodes: Sequence[NodeView], free: Sequence[NodeView], room: RoomFor) -> tuple[Miss, ...]:
    """Return the nodes that don't fit now, the one that lacks least first; at most 100."""
    names = {one.name for one in free}
    found = [Miss(one, room.lacks(one)) for one in nodes if one.name not in names]
    # One without a lack has other jobs beside it, which this job does not share nodes with.
    key = {id(one): sum(lack.share for lack in one.lacks) or 9.0 for one in found}
    return tuple(heapq.nsmallest(100, found, key=lambda one: (key[id(one)], one.node.name)))


def _is_scattered(shape: Shape, nodes: Sequence[NodeView]) -> bool:
    """True if enough is free in all, but not on one node, of a job that wants one."""
    if shape.nodes_most != 1 or shape.exclusive:
        return False
    room = RoomFor(shape, free_room)
    total: dict[str, int] = {}
    asked: dict[str, int] = {}
    divided = False
    for node in nodes:
        for one in room.needs(node):
            total[one.what] = total.get(one.what, 0) + one.has
            asked[one.what] = one.asked
            divided = divided or 0 < one.has < one.asked
    return divided and all(total[what] >= count for what, count in asked.items())
