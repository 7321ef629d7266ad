"""A run's CPUs: bound to as many as the job has, so that it also sees no more."""

from __future__ import annotations

import os
import shutil

from tunnelkit.simulate.runners.base import LocalJob


def here() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_pin() -> bool:
    """Return True if a run can be bound to CPUs."""
    return hasattr(os, "sched_getaffinity") and shutil.which("taskset") is not None


def pinned(job: LocalJob) -> list[str]:
    """Return the job's command, bound to its CPUs where that works."""
    cpus = job.limits.cpus
    if cpus is None or cpus >= here() or not can_pin():
        return list(job.argv)
    chosen = sorted(os.sched_getaffinity(0))[:cpus]
    return ["taskset", "-c", ",".join(map(str, chosen)), *job.argv]
