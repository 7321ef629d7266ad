"""What a real OpenPBS answered (data/README.md), by case."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from tunnelkit.model import Completed

_DATA = Path(__file__).parent / "data"
_FILES = (_DATA / "openpbs-23.06.jsonl", _DATA / "openpbs-23.06-cluster.jsonl")


@lru_cache(maxsize=1)
def _answers() -> dict[str, Completed]:
    rows = [json.loads(line) for file in _FILES for line in file.read_text().splitlines()]
    return {
        row["case"]: Completed(
            row["exit"], row.get("stdout", "").encode(), row.get("stderr", "").encode()
        )
        for row in rows
    }


def answer(case: str) -> Completed:
    return _answers()[case]


def as_text(case: str) -> Completed:
    """A JSON answer in the text form, as `qstat -f` of that version prints it."""
    told = json.loads(answer(case).stdout)
    lines = []
    for job_id, job in told.get("Jobs", {}).items():
        lines.append(f"Job Id: {job_id}")
        for name, value in job.items():
            if isinstance(value, dict) and name != "Variable_List":
                lines += [f"    {name}.{key} = {one}" for key, one in value.items()]
            elif isinstance(value, dict):
                pairs = [f"{key}={one}" for key, one in value.items()]
                lines.append(f"    {name} = " + ",\n\t".join(pairs))
            else:
                lines.append(_wrapped(f"    {name} = {value}"))
        lines += ["", ""]
    done = answer(case)
    return Completed(done.exit_code, "\n".join(lines).encode(), done.stderr)


def _wrapped(line: str) -> str:
    """qstat breaks lines at 79 characters, and begins what follows with a tab."""
    parts = [line[:79]]
    line = line[79:]
    while line:
        parts.append("\t" + line[:71])
        line = line[71:]
    return "\n".join(parts)
