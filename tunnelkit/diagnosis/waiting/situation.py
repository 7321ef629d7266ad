"""All that the rules look at: a waiting job, the cluster, and the arithmetic of both."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tunnelkit.diagnosis.evidence.cluster import ClusterView, NodeView, PartitionView, Window
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.waiting.backfill import (
    Gap,
    gap,
    is_planned,
    own_windows,
    sooner_minutes,
)
from tunnelkit.diagnosis.waiting.fit import CLOSED, Fit, fit, fits_on
from tunnelkit.diagnosis.waiting.room import RoomFor, empty_room, free_room
from tunnelkit.diagnosis.waiting.turn import Place, place


@dataclass(frozen=True, slots=True)
class Situation:
    """reason: Slurm's, with blanks. blocked_by: reservations that the job would run into, if all
    nodes that it fits on have one. gap: for how long nodes are free, if the job fits now.
    sooner_min: the time limit in minutes with which it would start now."""

    job: JobView
    cluster: ClusterView
    now_s: float
    reason: str
    fit: Fit
    place: Place
    partitions: tuple[PartitionView, ...]
    blocked_by: tuple[Window, ...]
    gap: Gap | None
    sooner_min: int | None


def plain_reason(job: JobView) -> str:
    """Return the reason as squeue prints it; scontrol has `_` for a blank."""
    return (job.reason or "None").replace("_", " ")


def look(job: JobView, cluster: ClusterView, now_s: float) -> Situation | None:
    """Return the situation; None if nodes or partitions are not known, so nothing can be added
    up."""
    names = job.partition.split(",")
    partitions = tuple(one for one in cluster.partitions if one.name in names)
    if not cluster.nodes or not partitions:
        return None
    if job.time_limit_s is None:
        # Without one of its own it has the partition's.
        longest = [one.time_most_s for one in partitions if one.time_most_s is not None]
        job = replace(job, time_limit_s=max(longest, default=None))
    found, ahead = fit(job, cluster, now_s), place(job, cluster)
    free = _gap(job, cluster, found, ahead, now_s)
    return Situation(
        job,
        cluster,
        now_s,
        plain_reason(job),
        found,
        ahead,
        partitions,
        _blocked_by(job, cluster, found, now_s),
        free,
        sooner_minutes(job, free, now_s),
    )


def _gap(job: JobView, cluster: ClusterView, found: Fit, ahead: Place, now_s: float) -> Gap | None:
    # Without the plan of those in front nobody knows how long a node is free, nor on which nodes
    # a job fits whose request is unclear.
    if job.shape.unclear or not found.fits_now or not ahead.known or not is_planned(ahead.ahead):
        return None
    room = RoomFor(job.shape, free_room)
    return gap(
        found.free,
        ahead.ahead,
        own_windows(job, cluster),
        lambda nodes: fits_on(job, nodes, room),
        now_s,
    )


def _blocked_by(job: JobView, cluster: ClusterView, found: Fit, now_s: float) -> tuple[Window, ...]:
    """Return the reservations in the way, if without their nodes the job fits nowhere."""
    ends_s = float("inf") if job.time_limit_s is None else now_s + job.time_limit_s
    windows = [
        one for one in own_windows(job, cluster) if one.end_s > now_s and one.start_s < ends_s
    ]
    hit = {node for one in windows for node in one.nodes}
    usable = _usable(found, hit, now_s, windows)
    clear = tuple(one for one in usable if one.name not in hit)
    room = RoomFor(job.shape, empty_room)
    if not windows or fits_on(job, clear, room) or not fits_on(job, usable, room):
        return ()
    names = {one.name for one in usable}
    return tuple(sorted((one for one in windows if names & set(one.nodes)), key=_start))


def _usable(found: Fit, hit: set[str], now_s: float, windows: list[Window]) -> tuple[NodeView, ...]:
    """Return the nodes that take jobs, and those that only a reservation keeps closed."""
    held = {node for one in windows if one.start_s <= now_s for node in one.nodes}
    opened = {one.name for one in found.open}
    return tuple(
        one
        for one in found.ever
        if one.name in opened or (one.name in held and not one.states & _DOWN)
    )


_DOWN = CLOSED - {"reserved", "resv", "maint"}


def _start(window: Window) -> float:
    return window.start_s
