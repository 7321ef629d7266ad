"""The path of a job's log: from the scheduler's record, else as tk saw it when there was one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict

from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.errors import SchedulerError
from tunnelkit.model import JobState
from tunnelkit.scheduler.base import Command
from tunnelkit.session.agent.find_python import DEFAULT
from tunnelkit.session.job.log_paths import log_path, recall_log_paths, remember_job_logs
from tunnelkit.session.logs.cluster import LogCluster
from tunnelkit.session.why.diagnose import newest_job
from tunnelkit.session.why.sources import WhySources


class LogPlaceInfo(TypedDict):
    """Paths of a job's log, for `--json`.

    path: the one that is read. name_in_directory: of the log, if path is a directory; "" where
    the scheduler writes into none. stderr_path: None if stderr goes into the same file. state: a
    `JobState`. known_from: `scheduler`; of a job that it has forgotten `tk`, with seen_s, when tk
    saw the path, or `files`: a file on the login host has the job's number and was last
    written at written_s; `you` for --file.
    """

    job_id: str
    path: str
    name_in_directory: str
    stdout_path: str
    stderr_path: str | None
    state: str
    known_from: str
    seen_s: float | None
    written_s: float | None


@dataclass(frozen=True)
class WantedLog:
    """The log to read. job_id: None: the user's newest. err: stderr's file.

    own: returns the path of the log of the session's job of that id; None for another job. file: ""
    or the log, as the user says; below his home if it is no absolute path.
    """

    job_id: str | None
    err: bool = False
    own: Callable[[str], str | None] = lambda job_id: None
    file: str = ""


async def find_log(cluster: LogCluster, wanted: WantedLog) -> LogPlaceInfo:
    """Return where the log is. Raises SchedulerError, ConnectionFailed, UsageError."""
    sources = WhySources(
        lambda argv: cluster.run(Command(tuple(argv))),
        cluster.inspector,
        cluster.name,
        directory="",
        python=DEFAULT,
    )
    job_id = wanted.job_id or await newest_job(sources)
    if wanted.file:
        file = f"./{wanted.file}" if wanted.file.startswith("-") else wanted.file
        place = _info(job_id, (file, ""), replace(wanted, err=False), JobState.UNKNOWN, None)
        return {**place, "known_from": "you"}
    mark = f"tk-{secrets.token_hex(8)}"
    done = await sources.run(cluster.inspector.inspect(job_id, mark))
    found = cluster.inspector.parse(done, job_id, mark)
    if found.job is None:
        if found.missing:
            raise SchedulerError(
                f"{cluster.scheduler.name} can't be asked for the log of job {job_id}",
                cause=found.missing[0],
                hint="try again in a minute",
                transient=True,
            )
        return _remembered(cluster, job_id, wanted, found.end or EndView())
    remember_job_logs(cluster.name, found.job, time.time())
    if found.job.state is JobState.ENDED and not found.job.stdout_path:
        return _of_accounting(cluster, found.job, found.end or EndView(), wanted)
    return _of_record(found.job, wanted)


def _of_accounting(
    cluster: LogCluster, job: JobView, end: EndView, wanted: WantedLog
) -> LogPlaceInfo:
    """Return where the log is of a job whose record names none, as that of an accounting.

    A path that tk saw in the scheduler's record comes before one that the inspection worked out."""
    known = recall_log_paths(cluster.name, job.job_id)
    if known is None and end.logs:
        return _info(job.job_id, _files(end), wanted, job.state, None)
    # Only sbatch's jobs have a step of that name.
    by_script = any(step.step == "batch" for step in end.steps)
    if known is None and not by_script and wanted.own(job.job_id) is None:
        return _of_record(job, wanted)
    return _remembered(cluster, job.job_id, wanted, None)


def _of_record(job: JobView, wanted: WantedLog) -> LogPlaceInfo:
    stdout, stderr = (log_path(job, path) for path in (job.stdout_path, job.stderr_path))
    if not stdout:
        raise SchedulerError(
            f"job {job.job_id} has no log of its own",
            cause="the scheduler names no file for its output, as for one from salloc or qsub -I, "
            "and for an array as a whole",
            hint="its output went to the terminal that started it; of an array, name one element",
        )
    place = _info(job.job_id, (stdout, stderr), wanted, job.state, None)
    out_name, err_name = job.log_names
    name = err_name if place["path"] == place["stderr_path"] else out_name
    return {**place, "name_in_directory": name}


def _remembered(
    cluster: LogCluster, job_id: str, wanted: WantedLog, end: EndView | None
) -> LogPlaceInfo:
    """Return where the log is of a job whose path the scheduler has forgotten.

    end: what was found of it; None if the accounting knows the job, and only the path is gone."""
    known = recall_log_paths(cluster.name, job_id)
    if known is not None:
        paths = (known.stdout, known.stderr)
        return _info(job_id, paths, wanted, JobState.ENDED, known.seen_s)
    own = wanted.own(job_id)
    if own is not None:
        return _info(job_id, (own, ""), wanted, JobState.ENDED, time.time())
    if end is not None and end.logs:
        place = _info(job_id, _files(end), wanted, JobState.ENDED, None)
        return {**place, "known_from": "files", "written_s": end.logs[0].written_s}
    name = cluster.scheduler.name
    gone = "no longer knows its path" if end is None else "has forgotten it or never had it"
    raise SchedulerError(
        f"where job {job_id} wrote its log is not known",
        cause=f"{name} {gone}, tk had not asked about it before, and no log that it could have by "
        "default was found",
        hint=f"by default it is {cluster.inspector.usual_log(job_id)} in the directory of the "
        f"submission: tk logs {job_id} --file FILE; tk why {job_id} looks for its black box",
    )


def _files(end: EndView) -> tuple[str, str]:
    """Return the files that were found, stdout's first; "" for a second one that is not there."""
    return end.logs[0].path, end.logs[1].path if len(end.logs) > 1 else ""


def _info(
    job_id: str,
    paths: tuple[str, str],
    wanted: WantedLog,
    state: JobState,
    seen_s: float | None,
) -> LogPlaceInfo:
    stdout, stderr = paths
    own_err = stderr if stderr and stderr != stdout else None
    return {
        "job_id": job_id,
        "path": own_err if wanted.err and own_err else stdout,
        "name_in_directory": "",
        "stdout_path": stdout,
        "stderr_path": own_err,
        "state": state.value,
        "known_from": "scheduler" if seen_s is None else "tk",
        "seen_s": seen_s,
        "written_s": None,
    }
