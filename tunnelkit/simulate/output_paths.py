"""Output files of a job, with what their names will be as far as it is known before the job."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

#: Stands for what only the job has.
_UNKNOWN = "\0"
_PATTERN = re.compile(r"%([0-9]{0,4})([%A-Za-z])")


def output_directories(outputs: Sequence[str], job_name: str) -> list[str]:
    """Return the paths whose directories can be looked for before there is a job.

    Slurm puts the job's name in for `%x`. A directory whose name holds the job's id or node is left
    out: nobody knows it yet."""
    found = []
    for path in outputs:
        if "\\" in path:
            continue  # sbatch takes it as it is, then: nothing is put in
        directory, name = os.path.split(path)
        directory = _PATTERN.sub(lambda match: _value(match, job_name), directory)
        if _UNKNOWN not in directory:
            found.append(os.path.join(directory, re.sub(r"%.*", "_", name) or "_"))
    return found


def _value(match: re.Match[str], job_name: str) -> str:
    if match[2] == "x":
        return job_name.replace("/", "_")
    return "%" if match[2] == "%" else _UNKNOWN
