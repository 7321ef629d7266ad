"""A job's place in the queue: who is in front, and who has the nodes until when."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import ClusterView, NodeView, QueuedJob, RunningJob
from tunnelkit.diagnosis.evidence.job import JobView

#: Jobs that wait for one of these are not in anybody's way.
_ELSEWHERE = re.compile(
    r"Dependency|BeginTime|JobHeld|Held|.*requeued.held|JobHold|JobArrayTaskLimit|Assoc|QOS|Max|"
    r"Partition|BadConstraints|Invalid|Account|Reservation$|Reservation(Invalid|Deleted)|DeadLine"
)


@dataclass(frozen=True, slots=True)
class Place:
    """ahead: in the scheduler's order, the first first. behind: how many jobs (and elements of
    arrays) come after. known: False if the queue was not told."""

    ahead: tuple[QueuedJob, ...]
    behind: int
    known: bool = True

    @property
    def jobs_ahead(self) -> int:
        """The number of jobs in front; each element of an array counts."""
        return sum(one.elements for one in self.ahead)


def place(job: JobView, cluster: ClusterView) -> Place:
    """Return the job's place among those that want the same nodes."""
    if job.priority is None or (not cluster.queue and any("squeue" in m for m in cluster.missing)):
        return Place((), 0, known=False)
    tiers = {one.name: one.tier for one in cluster.partitions}
    rivals = _rival_partitions(job, cluster)
    mine = _order(job.partition.split(","), job.priority, job.job_id, tiers)
    ahead, behind = [], 0
    for one in cluster.queue:
        if one.priority == 0 or _ELSEWHERE.match(one.reason) or not rivals & set(one.partitions):
            continue
        order = _order(one.partitions, one.priority or 0, one.job_id, tiers)
        if order < mine:
            ahead.append((order, one))
        else:
            behind += one.elements
    ahead.sort(key=lambda pair: pair[0])
    return Place(tuple(one for _, one in ahead), behind)


def _order(
    partitions: Iterable[str], priority: int, job_id: str, tiers: dict[str, int]
) -> tuple[int, int, int]:
    tier = max((tiers.get(name, 0) for name in partitions), default=0)
    number = re.match(r"[0-9]{1,18}", job_id)
    return (-tier, -priority, int(number[0]) if number else 0)


def _rival_partitions(job: JobView, cluster: ClusterView) -> set[str]:
    """Return the partitions that have nodes of the job's."""
    own = set(job.partition.split(","))
    nodes: set[str] = set()
    for one in cluster.partitions:
        if one.name in own:
            nodes |= one.nodes
    return own | {one.name for one in cluster.partitions if not nodes.isdisjoint(one.nodes)}


@dataclass(frozen=True, slots=True)
class Holder:
    """A node and the jobs on it. free_s: when all of them have ended, at the latest."""

    node: NodeView
    jobs: tuple[RunningJob, ...]
    free_s: float | None


def holders(nodes: Sequence[NodeView], running: Iterable[RunningJob]) -> tuple[Holder, ...]:
    """Return who has these nodes, the one that is free first at the front."""
    wanted = {one.name for one in nodes}
    jobs: dict[str, list[RunningJob]] = {name: [] for name in wanted}
    for one in running:
        for name in one.nodes:
            if name in wanted:
                jobs[name].append(one)
    found = []
    for node in nodes:
        some = sorted(jobs[node.name], key=lambda one: one.ends_s or float("inf"))
        ends = [one.ends_s for one in some]
        known = [end for end in ends if end is not None]
        free_s = max(known) if some and len(known) == len(ends) else None
        found.append(Holder(node, tuple(some), free_s))
    found.sort(key=lambda one: (one.free_s or float("inf"), one.node.name))
    return tuple(found)


def owner(user: str, me: str) -> str:
    """Return "you", the user's name, or "somebody" where it is hidden."""
    if not user:
        return "somebody"
    return "you" if user == me else user
