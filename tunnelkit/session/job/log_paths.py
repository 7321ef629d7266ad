"""The paths of jobs' logs, as tk saw them: a scheduler forgets a job minutes after its end.

One file, 0600, in the user's state directory.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.session.runtime.paths import state_root, write_private

if TYPE_CHECKING:
    from tunnelkit.diagnosis.evidence.job import JobView

_MOST_JOBS = 500
_LONGEST_PATH = 4096
_ON_HOST = re.compile(r"[A-Za-z0-9_.-]+:(/.*)")


@dataclass(frozen=True, slots=True)
class LogPaths:
    """The logs of one job. stderr: "" if it goes where stdout goes. seen_s: Unix time."""

    stdout: str
    stderr: str
    seen_s: float


def log_paths_file() -> Path:
    """Return the path of the file."""
    return state_root() / "job-logs.json"


def remember_log_paths(cluster: str, job_id: str, paths: LogPaths) -> None:
    """Store a job's paths. Raises nothing if the file can't be written."""
    if not paths.stdout or max(len(paths.stdout), len(paths.stderr)) > _LONGEST_PATH:
        return
    known = _read()
    key = f"{cluster} {job_id}"
    before = known.pop(key, None)
    known[key] = (paths.stdout, paths.stderr, paths.seen_s)
    # Not each time that the same job is asked for: only its time would change.
    if before is not None and before[:2] == known[key][:2] and paths.seen_s - before[2] < 60.0:
        return
    with contextlib.suppress(OSError):
        write_private(log_paths_file(), json.dumps(dict(list(known.items())[-_MOST_JOBS:])))


def remember_job_logs(cluster: str, job: JobView, now_s: float) -> None:
    """Store the paths of a job's record. Raises nothing."""
    stdout, stderr = log_path(job, job.stdout_path), log_path(job, job.stderr_path)
    remember_log_paths(cluster, job.job_id, LogPaths(stdout, stderr, now_s))


def log_path(job: JobView, path: str) -> str:
    """Return a path of the job's record as an absolute one on the login host; "" if there is none.

    PBS writes HOST:PATH; a relative path counts from the job's directory.
    """
    match = _ON_HOST.fullmatch(path)
    path = match[1] if match else path
    if path and not path.startswith("/") and job.directory.startswith("/"):
        return f"{job.directory.rstrip('/')}/{path}"
    return path if path.startswith("/") else ""


def recall_log_paths(cluster: str, job_id: str) -> LogPaths | None:
    """Return the paths of a job; None if tk has not seen it.

    People leave out the name of PBS's server, or its domain: 29 means 29.login, if tk knows no
    other 29."""
    known = _read()
    row = known.get(f"{cluster} {job_id}")
    if row is None:
        number, _, server = job_id.partition(".")
        same = []
        for key, one in known.items():
            other_number, _, other = key.removeprefix(f"{cluster} ").partition(".")
            hosts = {server.partition(".")[0], other.partition(".")[0]} - {""}
            if other_number == number and len(hosts) < 2:
                same.append(one)
        row = same[0] if len(same) == 1 else None
    return None if row is None else LogPaths(row[0], row[1], row[2])


def _read() -> dict[str, tuple[str, str, float]]:
    try:
        data = json.loads(log_paths_file().read_text())
        rows = {str(key): (str(row[0]), str(row[1]), float(row[2])) for key, row in data.items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}
    return rows
