"""A node's room for a job, empty or now, and the job's needs on each node.

What the scheduler counts is counted here: CPUs, memory and GPUs that jobs were given, not what
programs use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import NodeView
from tunnelkit.diagnosis.evidence.job import GpuNeed, Shape


@dataclass(frozen=True, slots=True)
class Room:
    """A node's room for a job: all of it, or what is free. shared: other jobs are on it."""

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
        """The missing part of what is asked for, from 0 to 1."""
        return (self.asked - self.has) / max(1, self.asked)


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


class RoomFor:
    """One job's needs against nodes; nodes with the same numbers are looked at once.

    room: `empty_room` or `free_room`.
    """

    def __init__(self, shape: Shape, room: Callable[[NodeView], Room]) -> None:
        self.shape = shape
        self._room = room
        self._tasks: dict[tuple[int, ...], int] = {}
        self._needs: dict[tuple[int, ...], tuple[Lack, ...]] = {}

    def tasks(self, node: NodeView) -> int:
        """Return how many of the job's tasks fit there; 0 if a need of each node is not met."""
        key = _numbers(node)
        if key not in self._tasks:
            self._tasks[key] = tasks_on(self._room(node), self.shape)
        return self._tasks[key]

    def needs(self, node: NodeView) -> tuple[Lack, ...]:
        """Return what each node of the job needs, with what this one has of it."""
        key = _numbers(node)
        if key not in self._needs:
            self._needs[key] = needs(self._room(node), self.shape)
        return self._needs[key]

    def lacks(self, node: NodeView) -> tuple[Lack, ...]:
        """Return what this node has less of than the job needs."""
        return tuple(one for one in self.needs(node) if one.has < one.asked)

    def gpus(self, node: NodeView, kind: str) -> int:
        """Return the number of GPUs of a kind; "" for any."""
        return self._room(node).gpus_of(kind)


def _numbers(node: NodeView) -> tuple[int, ...]:
    """Return a key that nodes with the same numbers share, as long as the nodes live."""
    return (
        node.cpus,
        node.cpus_idle,
        node.mem_bytes,
        node.mem_allocated_bytes,
        id(node.gpus),
    )


def tasks_on(room: Room, shape: Shape) -> int:
    """Return how many of the job's tasks fit there; 0 if a need of each node is not met."""
    if any(one.has < one.asked for one in needs(room, shape)):
        return 0
    if (shape.exclusive and room.shared) or (shape.all_memory and room.mem_shared):
        return 0
    gpus = sum(one.count for one in shape.gpus_per_task)
    count = room.cpus // max(1, shape.cpus_per_task, shape.cpus_per_gpu * gpus)
    if shape.mem_per_gpu_bytes and gpus:
        count = min(count, room.mem_bytes // (shape.mem_per_gpu_bytes * gpus))
    if shape.mem_per_cpu_bytes:
        count = min(count, room.mem_bytes // (shape.mem_per_cpu_bytes * shape.cpus_per_task))
    for one in shape.gpus_per_task:
        count = min(count, room.gpus_of(one.kind) // max(1, one.count))
    if shape.tasks_per_node:
        count = min(count, shape.tasks_per_node)
    return count


def needs(room: Room, shape: Shape) -> tuple[Lack, ...]:
    """Return what each node of the job needs, with what the room has of it."""
    gpus = sum(one.count for one in gpus_on_node(shape))
    cpus = max(shape.node_cpus, shape.cpus_per_task, shape.cpus_per_gpu * gpus)
    if shape.nodes_most == 1:
        cpus = max(cpus, shape.tasks * shape.cpus_per_task)
    memory = shape.mem_per_node_bytes or (shape.mem_per_cpu_bytes or 0) * cpus
    memory = memory or shape.mem_per_gpu_bytes * gpus
    found = [Lack("CPUs", cpus, room.cpus)]
    if memory:
        found.append(Lack("memory", memory, room.mem_bytes))
    for one in gpus_on_node(shape):
        found.append(Lack(gpu_words(one.kind), one.count, room.gpus_of(one.kind)))
    return tuple(found)


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
