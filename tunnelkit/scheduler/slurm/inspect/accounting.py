"""Rows of `sacct -D -P`: a job's runs and steps. Source: man sacct, real 22.05 with slurmdbd."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.evidence.job import JobView, NodeNeed
from tunnelkit.model import JobState
from tunnelkit.scheduler.sections import Section
from tunnelkit.scheduler.slurm.inspect.job import gpus_of, nodes_of, size_bytes
from tunnelkit.scheduler.slurm.states import state_of

SEPARATOR = "\x1f"
#: WorkDir stands last: SCRIPT of `ended` looks for it there.
FIELDS = (
    "JobID,JobName,State,ExitCode,Submit,Start,End,MaxRSS,NTasks,TotalCPU,TimelimitRaw,"
    "AllocTRES,NodeList,User,Partition,Account,QOS,WorkDir"
)
_NUMBER_OF_FIELDS = FIELDS.count(",") + 1
_MOST_ROWS, _MOST_ELEMENTS = 2000, 100_000
_ID = re.compile(r"([0-9]+(?:_[0-9]+|\+[0-9]+)?)(?:\.(\S+))?")
_CPU = re.compile(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,4}):)?([0-9]{1,4}):([0-9]{1,2}(?:\.[0-9]{1,6})?)")


@dataclass(frozen=True, slots=True)
class Row:
    """One row. job_id: with the array's task, without the step."""

    job_id: str
    step: StepView
    submit_s: float | None
    limit_s: int | None
    unlimited: bool
    tres: str
    nodes: str
    user: str
    partition: str
    account: str
    qos: str
    directory: str


def rows_of(text: str, most: int = _MOST_ROWS) -> tuple[Row, ...]:
    """Return the rows; lines that are none (warnings, complaints) are left out."""
    found = []
    for line in text.split("\n")[:most]:
        fields = line.split(SEPARATOR)
        match = _ID.fullmatch(fields[0].strip())
        if len(fields) == _NUMBER_OF_FIELDS and match:
            found.append(_row(match[1], match[2] or "", fields))
    return tuple(found)


def last_run(rows: Sequence[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the rows of the job's last run, and those of the runs before.

    A job that went back into the queue has a row for each run; a step belongs to the run in
    whose time it began."""
    runs = [row for row in rows if not row.step.step]
    if len(runs) < 2:
        return tuple(rows), ()
    begun_s = max((row.step.start_s or 0.0 for row in runs), default=0.0)
    last = max(range(len(runs)), key=lambda at: (runs[at].step.start_s or 0.0, at))
    now = tuple(
        row
        for row in rows
        if (row is runs[last] if not row.step.step else (row.step.start_s or begun_s) >= begun_s)
    )
    name = runs[last].step.name
    same = [row for row in rows if row not in now and (row.step.step or row.step.name == name)]
    return now, tuple(sorted(same, key=lambda row: row.step.start_s or 0.0))


@dataclass(frozen=True, slots=True)
class ArrayEnd:
    """The ends of an array's elements. element: the one to judge. text: how many failed.

    whole: False if not all of the elements that have a row are known."""

    element: str
    text: str
    whole: bool = True


def array_end(section: Section) -> ArrayEnd | None:
    """Return how an array ended; None if the section `elements` of SCRIPT has fewer than two.

    The element to judge is the one that failed first, else one that was cancelled, else the last.
    """
    count, _, text = section.text.partition("\n")
    rows = rows_of(text, _MOST_ELEMENTS)
    whole = section.code == 0 and count.strip() == str(len(rows))
    runs: dict[str, StepView] = {}
    for row in rows:
        before = runs.get(row.job_id, row.step)
        newer = (row.step.start_s or 0.0) >= (before.start_s or 0.0)
        runs[row.job_id] = row.step if newer else before
    if len(runs) < 2:
        return None
    all_of = f"{len(runs)} elements" if whole else f"the first {len(runs)} elements listed"
    over = {name: run for name, run in runs.items() if _is_over(run)}
    bad = {name: run for name, run in over.items() if not run.state.startswith("COMPLETED")}
    failed = {name: run for name, run in bad.items() if not run.state.startswith("CANCELLED")}
    if bad:
        some, how = (failed, "failed") if failed else (bad, "were cancelled")
        first = min(some, key=lambda name: some[name].end_s or float("inf"))
        text = f"{len(some)} of {all_of} {how}, the first is {first}"
    else:
        first = max(over or runs, key=lambda name: runs[name].end_s or 0.0)
        text = f"none of {all_of} failed; this is about {first}"
    left = len(runs) - len(over)
    return ArrayEnd(first, f"{text}; {left} of them not over yet" if left else text, whole)


def _is_over(run: StepView) -> bool:
    words = run.state.split()
    return bool(words) and state_of(words[0])[0] is JobState.ENDED


def job_of(row: Row, job_id: str) -> JobView:
    """Return the job as its row in the accounting describes it."""
    words = row.step.state.split()
    memory = re.search(r"(?:^|,)mem=([^,]+)", row.tres)
    count = len(nodes_of(row.nodes)) or 1
    total = size_bytes(memory[1]) if memory else None
    # AllocTRES counts the whole job; the limit is a node's.
    need = NodeNeed(mem_bytes=total // count if total else None, gpus=gpus_of(row.tres))
    return JobView(
        job_id=job_id,
        state=state_of(words[0])[0] if words else JobState.UNKNOWN,
        native_state=row.step.state,
        name=row.step.name,
        user=row.user,
        partition=row.partition,
        account=row.account,
        qos=row.qos,
        submit_s=row.submit_s,
        start_s=row.step.start_s,
        end_s=row.step.end_s,
        time_limit_s=row.limit_s,
        unlimited=row.unlimited,
        need=need,
        nodes=nodes_of(row.nodes),
        exit_code=row.step.exit_code,
        signal=row.step.signal,
        directory=row.directory,
        code_by_sacct=True,
    )


def cpu_seconds(text: str) -> float | None:
    """Return the seconds of TotalCPU: `1-02:03:04`, `03:04:05`, `00:00.560`; None for none."""
    match = _CPU.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _row(job_id: str, step: str, fields: Sequence[str]) -> Row:
    (_, name, state, codes, submit, start, end, rss, tasks, cpu, limit, tres,
     nodes, user, partition, account, qos, directory) = (one.strip() for one in fields)  # fmt: skip
    code = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", codes)
    return Row(
        job_id,
        StepView(
            step=step,
            name=name,
            state=state,
            exit_code=int(code[1]) if code else None,
            signal=int(code[2]) if code else None,
            start_s=_time(start),
            end_s=_time(end),
            # 0 is "not sampled".
            max_rss_bytes=(size_bytes(rss) or None) if rss[-1:].isalpha() else None,
            cpu_s=cpu_seconds(cpu) or None,
            code_by_sacct=True,
            tasks=int(tasks) if re.fullmatch(r"[0-9]{1,9}", tasks) else None,
        ),
        submit_s=_time(submit),
        limit_s=int(limit) * 60 if re.fullmatch(r"[0-9]{1,9}", limit) else None,
        unlimited=limit == "UNLIMITED",
        tres=tres,
        nodes=nodes,
        user=user,
        partition=partition,
        account=account,
        qos=qos,
        directory=directory if directory.startswith("/") else "",
    )


def _time(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{9,12}", text) else None
