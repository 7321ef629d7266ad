"""Slurm's job ids."""

from __future__ import annotations

import re

from tunnelkit.errors import UsageError

JOB_ID = re.compile(r"[0-9]+(_[0-9]+)?")
#: squeue's ids for what has no such id: an array's waiting elements (`7_[0-9%2]`), a component of a
#: heterogeneous job (`7+1`).
JOB_PART = re.compile(r"[0-9]+(_\[[^|\]]*\]?|\+[0-9]+)")


def check_job_id(text: str) -> str:
    """Return `text` if it is the id of one job or array task. Raises UsageError."""
    if not JOB_ID.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a Slurm job id", hint="give a number, as squeue shows it"
        )
    return text
