"""A record of `qstat -f` as a JobView. Under TZ=UTC0 qstat prints its times in UTC."""

from __future__ import annotations

import contextlib
import re

from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.errors import SchedulerError
from tunnelkit.model import JobState
from tunnelkit.scheduler.pbs.inspect.request import chunks_of, count_of, need_of, size_bytes
from tunnelkit.scheduler.pbs.parse import JobRecord, nodes_of, seconds, unix_time
from tunnelkit.scheduler.pbs.states import deleted_by, hold_reason, state_of

_VNODE = re.compile(r"\(?([A-Za-z0-9_.-]+)(?=[:)\[])")
_EXIT = re.compile(r"-?[0-9]{1,6}")
_ARRAY_INDEX = "^array_index^"
_ELEMENT = re.compile(r"[0-9]+\[([0-9]+)\]")


def job_view(record: JobRecord) -> JobView:
    """Return the job."""
    native, comment = record.get("job_state"), record.get("comment").strip()
    state = state_of(native)[0]
    if state is JobState.RUNNING and deleted_by(comment):
        state = JobState.ENDED
    pending = state is JobState.PENDING
    request = record.get("Resource_List.select") or record.get("Resource_List.nodes")
    wanted, need, named = need_of(chunks_of(request or _plain(record)), record.get(_PLACE))
    ran = count_of(record.get("run_count")) or 0
    code, signal = exit_of(record.get("Exit_status"))
    out, err = f"{record.job_id}.OU", f"{record.job_id}.ER"
    return JobView(
        job_id=record.job_id,
        state=state,
        native_state=native,
        reason=_reason(native, record.get("Hold_Types"), comment),
        name=record.get("Job_Name"),
        user=record.get("Job_Owner").partition("@")[0],
        partition=record.get("queue"),
        account=record.get("Account_Name") or record.get("project"),
        priority=_signed(record.get("Priority")),
        restarts=ran if pending else max(0, ran - 1),
        submit_s=unix_time(record.get("ctime")),
        eligible_s=unix_time(record.get("Execution_Time") or record.get("etime")),
        start_s=None if pending else unix_time(record.get("stime")),
        end_s=end_time(record) if state is JobState.ENDED else None,
        expected_start_s=unix_time(record.get("estimated.start_time")) if pending else None,
        expected_nodes=vnodes_of(record.get("estimated.exec_vnode")) if pending else (),
        time_limit_s=seconds(record.get("Resource_List.walltime")),
        nodes_wanted=wanted,
        need=need,
        required_nodes=named,
        dependency=record.get("depend"),
        nodes=_nodes(record.get("exec_host")),
        exit_code=code,
        signal=signal,
        directory=_directory(record),
        command=record.get("executable"),
        stdout_path=_log(record, "Output_Path", out),
        stderr_path=_log(record, "Error_Path", err),
        log_names=(out, err),
        mem_total_bytes=size_bytes(record.get("Resource_List.mem")),
    )


_PLACE = "Resource_List.place"


def exit_of(text: str) -> tuple[int | None, int | None]:
    """Return the exit code and the signal of an Exit_status: above 256 a signal ended the shell.

    A code below 0 is PBS's own, and stays as it is."""
    if not _EXIT.fullmatch(text):
        return None, None
    status = int(text)
    return (status, status - 256) if 256 < status < 256 + 65 else (status, None)


def vnodes_of(text: str) -> tuple[str, ...]:
    """Return the nodes of `(node1:ncpus=2:ngpus=1)+(node2:ncpus=1)`, each once."""
    names = [match[1] for part in text.split("+") if (match := _VNODE.match(part.strip()))]
    return tuple(dict.fromkeys(names))


def _reason(native: str, hold_types: str, comment: str) -> str | None:
    return hold_reason(hold_types, comment) if native == "H" else comment or None


def _plain(record: JobRecord) -> str:
    """Return a request without chunks (`-l ncpus=4,mem=2gb`) as one chunk."""
    names = ("ncpus", "ngpus", "mem")
    values = [(name, record.get(f"Resource_List.{name}")) for name in names]
    return ":".join(["1", *(f"{name}={value}" for name, value in values if value)])


def _nodes(exec_host: str) -> tuple[str, ...]:
    with contextlib.suppress(SchedulerError):
        return nodes_of(exec_host)
    return ()


def end_time(record: JobRecord) -> float | None:
    """Return the Unix time of the job's end; None if it is not on record."""
    stamp = record.get("history_timestamp")
    if re.fullmatch(r"[0-9]{9,12}", stamp):
        return float(stamp)
    for name in ("obittime", "comp_time", "mtime"):
        if (found := unix_time(record.get(name))) is not None:
            return found
    return None


def _directory(record: JobRecord) -> str:
    told = record.get("jobdir") or record.get("init_work_dir")
    match = re.search(r"(?:^|,)PBS_O_WORKDIR=([^,]*)", record.get("Variable_List"))
    return (match[1] if match else "") or record.get("Variable_List.PBS_O_WORKDIR") or told


def _log(record: JobRecord, attribute: str, name: str) -> str:
    """Return the path of a log; "" for an array's as a whole, which has none.

    qsub writes a directory with a slash at its end. An element has its index in the path only once
    it starts."""
    path = _path(record.get(attribute))
    if path.endswith("/"):
        path += name
    if _ARRAY_INDEX in path:
        element = _ELEMENT.match(record.job_id)
        return path.replace(_ARRAY_INDEX, element[1], 1) if element else ""
    return path


def _path(text: str) -> str:
    """Return `/home/a/x.o1` of `login:/home/a/x.o1`."""
    host, colon, path = text.partition(":")
    return path if colon and "/" not in host else text


def _signed(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
