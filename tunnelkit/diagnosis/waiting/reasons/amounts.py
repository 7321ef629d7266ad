"""What a limit counts, and how much of it a job asks for, in numbers and words."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.cluster import Limit
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.waiting.reasons.time_words import span

_MIB = 1 << 20
#: what -> one, many.
_NOUNS = {
    "cpu": ("CPU", "CPUs"),
    "node": ("node", "nodes"),
    "jobs": ("job", "jobs"),
    "submit": ("job", "jobs"),
    "gres/gpu": ("GPU", "GPUs"),
    "billing": ("billing unit", "billing units"),
}


def is_minutes(limit: Limit) -> bool:
    """True if the limit is on minutes: of a resource, or of time."""
    return "Mins" in limit.name or limit.what == "wall"


def amount(limit: Limit, value: float) -> str:
    """Return an amount of what a limit counts: `1 GPU`, `60 CPU minutes`, `64 GB`, `2 h`."""
    if limit.name == "MaxWallPJ":
        return span(value * 60)
    number = f"{value:g}" if value < 1e6 else f"{value:.0f}"
    if is_minutes(limit):
        one = "wall-clock" if limit.what == "wall" else _noun(limit.what, 1)
        return f"{number} {one} {'minute' if value == 1 else 'minutes'}"
    if limit.what == "mem":
        return f"{value / 1024:.4g} GB" if value >= 1024 else f"{number} MB"
    return f"{number} {_noun(limit.what, value)}"


def part(limit: Limit, value: float) -> str:
    """Return an amount beside `amount` of the same limit, without the unit that it repeats."""
    if limit.what == "mem" or limit.name == "MaxWallPJ":
        return amount(limit, value)
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _noun(what: str, value: float) -> str:
    if what.startswith("gres/gpu:"):
        kind = what.partition(":")[2]
        return f"{kind} {_noun('gres/gpu', value)}"
    one, many = _NOUNS.get(what, (what, what))
    return one if value == 1 else many


def asked(job: JobView, limit: Limit) -> float | None:
    """Return how much of what a limit counts the job asks for; None if that is not known."""
    if limit.what in ("jobs", "submit"):
        return 1
    minutes = None if job.time_limit_s is None else job.time_limit_s / 60
    if limit.what == "wall":
        return minutes
    counted = _counted(job, limit.what, per_node=limit.name == "MaxTRESPN")
    if counted is None or not is_minutes(limit):
        return counted
    return None if minutes is None else counted * minutes


def asked_exactly(job: JobView, limit: Limit) -> bool:
    """True if `asked` is what the scheduler compares, not a share of a node that was rounded up."""
    return job.nodes_wanted == 1 or limit.what in ("jobs", "submit", "node", "wall")


def minutes_that_fit(job: JobView, limit: Limit) -> int:
    """Return the longest time limit that fits in what is left of a limit on minutes; 0 if none."""
    if limit.name == "MaxWallPJ":
        return int(limit.limit)
    counted = _counted(job, limit.what, per_node=False)
    if not is_minutes(limit) or not counted or counted <= 0:
        return 0
    return max(0, int((limit.limit - limit.used) // counted))


def _counted(job: JobView, what: str, *, per_node: bool) -> float | None:
    nodes = 1 if per_node else job.nodes_wanted
    need = job.need
    if what == "cpu":
        return float(need.cpus * nodes)
    if what == "node":
        return float(nodes)
    if what == "mem":
        return None if need.mem_bytes is None else need.mem_bytes * nodes / _MIB
    if what == "gres/gpu":
        return float(sum(one.count for one in need.gpus) * nodes)
    if what.startswith("gres/gpu:"):
        kind = what.partition(":")[2]
        return float(sum(one.count for one in need.gpus if one.kind == kind) * nodes)
    return None
