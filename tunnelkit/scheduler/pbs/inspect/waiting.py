"""The cluster around a waiting job of PBS: queue, server, other jobs and nodes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from tunnelkit.diagnosis.evidence.cluster import ClusterView, Limit, QueuedJob, RunningJob
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.errors import SchedulerError
from tunnelkit.scheduler.pbs.inspect.nodes import node_views
from tunnelkit.scheduler.pbs.inspect.request import count_of
from tunnelkit.scheduler.pbs.parse import nodes_of, parse_attributes, seconds
from tunnelkit.scheduler.sections import Section

#: Runs if the job waits. $queue: its queue. Four commands of PBS.
SCRIPT = r"""
section queue qstat -Qf "$queue"
section server qstat -Bf
section jobs qstat -n -1
"""
#: PBS only: Torque's pbsnodes counts otherwise.
NODES = "section nodes pbsnodes -a -F json\n"

#: The columns of `qstat -n -1`: id, user, queue, name, session, nodes, tasks, memory, time, state,
#: elapsed, nodes.
_COLUMNS = 12
#: Others of the queue that are kept; what is beyond is counted nowhere.
_MOST_JOBS = 20_000
#: `[u:PBS_GENERIC=2], [o:PBS_ALL=100]`
_LIMIT = re.compile(r"\[([ugpo]):([^\]=]+)=([0-9]{1,9})\]")
_OLD_LIMITS = {
    "max_running": "o:PBS_ALL",
    "max_user_run": "u:PBS_GENERIC",
    "max_group_run": "g:PBS_GENERIC",
}


def cluster_view(sections: Mapping[str, Section], job: JobView, now_s: float) -> ClusterView:
    """Return the cluster as the sections of SCRIPT and NODES describe it."""
    missing: list[str] = []

    def text(name: str, command: str) -> str:
        found = sections.get(name)
        if found is None or found.failure:
            missing.append(f"{command}: {found.failure if found else 'no answer'}")
        return found.text if found and not found.failure else ""

    queue = parse_attributes(text("queue", f"qstat -Qf {job.partition}"))
    server = parse_attributes(text("server", "qstat -Bf"))
    rows = list(_rows(text("jobs", "qstat -n -1")))
    nodes = None
    if "nodes" in sections:
        told = text("nodes", "pbsnodes -a")
        nodes = node_views(told, job.partition) if told else ()
        if nodes is None:
            missing.append("pbsnodes -a: its JSON can't be read")
    mine = [row for row in rows if _same(row[2], job.partition) and row[0] != job.job_id]
    return ClusterView(
        nodes=nodes or (),
        queue=tuple(QueuedJob(row[0], row[1], None, "") for row in mine if row[9] == "Q"),
        running=tuple(_running(row, now_s) for row in mine if row[9] in "RE"),
        limits=(
            *_limits(f"queue {job.partition}", queue, mine, job),
            *_limits("the server", server, rows, job),
        ),
        missing=tuple(missing),
        switched_off=tuple(_switched_off(job.partition, queue, server)),
    )


def _rows(text: str) -> Iterator[tuple[str, ...]]:
    for line in text.split("\n", _MOST_JOBS)[:_MOST_JOBS]:
        words = tuple(line.split(None, _COLUMNS - 1))
        if len(words) >= _COLUMNS - 1 and words[0][:1].isdigit() and words[9].isalpha():
            yield words if len(words) == _COLUMNS else (*words, "")


def _same(shown: str, name: str) -> bool:
    """True if a column that qstat cuts off shows this name."""
    return name == shown or (len(shown) >= 8 and name.startswith(shown.rstrip("*")))


def _running(row: tuple[str, ...], now_s: float) -> RunningJob:
    limit, used = _minutes(row[8]), _minutes(row[10])
    ends = None if limit is None or used is None else now_s + max(0, limit - used)
    return RunningJob(row[0], row[1], _nodes(row[11].strip()), ends)


def _nodes(exec_host: str) -> tuple[str, ...]:
    with contextlib.suppress(SchedulerError):
        return nodes_of(exec_host.replace("--", ""))
    return ()


def _minutes(text: str) -> int | None:
    """Return the seconds of qstat's `HH:MM`."""
    return seconds(f"{text}:00") if re.fullmatch(r"[0-9]{1,6}:[0-9]{2}", text) else None


def _switched_off(name: str, queue: Mapping[str, str], server: Mapping[str, str]) -> Iterator[str]:
    if queue.get("started", "True") == "False":
        yield f"queue {name} is stopped (started = False)"
    # A queue with a partition has a scheduler of its own; the server's attribute is not about it.
    if server.get("scheduling", "True") == "False" and not queue.get("partition"):
        yield "the server starts no jobs at the moment (scheduling = False)"


def _limits(
    owner: str, attributes: Mapping[str, str], rows: list[tuple[str, ...]], job: JobView
) -> Iterator[Limit]:
    """Yield the limits on running jobs whose use can be counted."""
    told = [("max_run", *one) for one in _LIMIT.findall(attributes.get("max_run", ""))]
    for name, entity in _OLD_LIMITS.items():
        kind, _, who = entity.partition(":")
        told.append((name, kind, who, attributes.get(name, "")))
    running = [row for row in rows if row[9] in "RE"]
    for name, kind, who, value in told:
        limit = count_of(value)
        if limit is None or kind not in "uo":
            continue
        if kind == "u" and who not in ("PBS_GENERIC", job.user):
            continue
        used = len(running) if kind == "o" else sum(_same(row[1], job.user) for row in running)
        what = "running jobs" if kind == "o" else "running jobs of one user"
        yield Limit(owner, name, what, float(limit), float(used))
