"""The time that free nodes stay free: what a shorter time limit would start now.

Slurm's backfill starts a job at once if it ends before a job of higher priority, or a
reservation, needs its nodes. It plans whole nodes, in steps of a minute (bf_resolution).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import ClusterView, NodeView, QueuedJob, Window
from tunnelkit.diagnosis.evidence.job import JobView

_STEP_S = 60
#: The user needs a moment to type, and the scheduler one for its next round.
_SLACK_S = 120
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Gap:
    """nodes: on which the job fits now. until_s: when the first of them is needed; None if
    nobody is known to need it. by: the waiting job or the reservation that needs it then."""

    nodes: tuple[NodeView, ...]
    until_s: float | None
    by: QueuedJob | Window | None = None


def gap(
    free: Sequence[NodeView],
    ahead: Sequence[QueuedJob],
    windows: Sequence[Window],
    suffices: Callable[[Sequence[NodeView]], bool],
    now_s: float,
) -> Gap | None:
    """Return the longest time for which the job's nodes are free; None if they never suffice.

    suffices: True if the job fits on these nodes together."""
    needed = _first_needs(ahead, windows, now_s)
    nobody: tuple[float, QueuedJob | Window | None] = (_NEVER, None)
    order = sorted(free, key=lambda one: (-needed.get(one.name, nobody)[0], one.name))
    low, high = 1, len(order)
    if not order or not suffices(order):
        return None
    while low < high:  # more nodes never fit worse
        middle = (low + high) // 2
        if suffices(order[:middle]):
            high = middle
        else:
            low = middle + 1
    chosen = tuple(order[:high])
    until_s, by = min((needed.get(one.name, nobody) for one in chosen), key=lambda pair: pair[0])
    return Gap(chosen, None if until_s == _NEVER else until_s, by)


def _first_needs(
    ahead: Sequence[QueuedJob], windows: Sequence[Window], now_s: float
) -> dict[str, tuple[float, QueuedJob | Window | None]]:
    """Return by node when it is needed first, and by what."""
    found: dict[str, tuple[float, QueuedJob | Window | None]] = {}

    def note(node: str, start_s: float, by: QueuedJob | Window) -> None:
        if node not in found or start_s < found[node][0]:
            found[node] = (start_s, by)

    for one in ahead:
        if one.expected_start_s is not None:
            for node in one.expected_nodes:
                note(node, one.expected_start_s, one)
    for window in windows:
        if window.end_s > now_s:
            for node in window.nodes:
                note(node, window.start_s, window)
    return found


def is_planned(ahead: Sequence[QueuedJob]) -> bool:
    """True if the scheduler has planned the first job in front: then its plan can be relied on."""
    return not ahead or ahead[0].expected_start_s is not None


def minutes_until(until_s: float, now_s: float) -> int:
    """Return the longest time limit that ends before then, in minutes; 0 if there is none."""
    begins_s = until_s // _STEP_S * _STEP_S
    return max(0, int((begins_s - now_s - _SLACK_S) // 60))


def sooner_minutes(job: JobView, found: Gap | None, now_s: float) -> int | None:
    """Return the time limit in minutes with which the job would start now.

    None if there is none, or the job is as short as that already."""
    if found is None or found.until_s is None:
        return None
    minutes = minutes_until(found.until_s, now_s)
    if minutes < 1 or (job.time_limit_s is not None and minutes * 60 >= job.time_limit_s):
        return None
    return minutes


def own_windows(job: JobView, cluster: ClusterView) -> tuple[Window, ...]:
    """Return the reservations that keep the job out: all but its own, those that it enters
    unasked, and those of only some cores of their nodes."""
    names = job.reservation.split(",")
    return tuple(
        one
        for one in cluster.windows
        if one.name not in names and not one.partial and not (one.magnetic and _may_use(job, one))
    )


def _may_use(job: JobView, window: Window) -> bool:
    if window.accounts:
        return job.account in window.accounts
    return not window.users or job.user in window.users
