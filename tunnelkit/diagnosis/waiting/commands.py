"""Slurm's commands that change or cancel the waiting job, and no other.

The elements of an array that run have its number, too: they are left alone.
"""

from __future__ import annotations

import shlex

from tunnelkit.diagnosis.evidence.job import JobView


def update(job: JobView, change: str) -> str:
    """Return the command for `change`, such as `timelimit=30`."""
    return f"scontrol update jobid={shlex.quote(job.address)} {change}"


def release(job: JobView) -> str:
    """Return the command that ends a hold."""
    return f"scontrol release {shlex.quote(job.address)}"


def cancel(job: JobView) -> str:
    """Return the command that cancels it."""
    return f"scancel {shlex.quote(job.address)}"
