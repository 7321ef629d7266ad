"""A job that waits for other jobs: which, and what they do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting import commands
from tunnelkit.diagnosis.waiting.reasons.time_words import span
from tunnelkit.diagnosis.waiting.slurm_reasons import Reason

_MOST = 20
_ITEM = re.compile(r"([a-z]+)(?::([0-9]+)(_\*|_[0-9]+)?(?:\+[0-9]+)?)?(?:\(([a-z]+)\))?")
#: The kind of a dependency -> what the other job has to do.
_KINDS = {
    "after": "to start",
    "afterany": "to end",
    "afterok": "to end with exit code 0",
    "afternotok": "to fail",
    "aftercorr": "to end with exit code 0 in the task of the same number",
    "afterburstbuffer": "to end and have its burst buffer cleared",
    "expand": "to be expanded",
    "singleton": "to end: no other job of yours with this name may run",
}


@dataclass(frozen=True, slots=True)
class _Item:
    kind: str
    job_id: str
    failed: bool


def judge_dependency(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    """Return the verdict on a job whose reason is its dependency."""
    items = _items(job.dependency)
    text = job.dependency or "not on record"
    said = Evidence(f"dependency {text}", "scontrol show job")
    failed = [one for one in items if one.failed]
    any_is_enough = "?" in job.dependency
    never = bool(failed) and (not any_is_enough or len(failed) == len(items))
    if never or reason.code == "dependency-never":
        return _never(job, failed or items, said)
    waits_for = [one for one in items if not one.failed]
    states = (_state(one, cluster, now_s) for one in waits_for[:5] if one.job_id)
    return Verdict(
        "dependency",
        f"waits for {_what(waits_for, any_is_enough=any_is_enough)}",
        Certainty.PROVEN,
        (said, *states),
        next_steps=(_free(job),),
    )


def _items(text: str) -> list[_Item]:
    found = []
    for part in re.split(r"[,?]", text[:2000])[:_MOST]:
        if match := _ITEM.match(part.strip()):
            kind, number, task, state = match.groups()
            job_id = f"{number or ''}{(task or '').removesuffix('_*')}"
            found.append(_Item(kind, job_id, state == "failed"))
    return found


def _never(job: JobView, items: list[_Item], said: Evidence) -> Verdict:
    whom = f"job {items[0].job_id}" if items and items[0].job_id else "the job it depends on"
    wanted = f" {_KINDS[items[0].kind]}" if items and items[0].kind in _KINDS else ""
    sentence = f"can never start: it waits for {whom}{wanted}, and that can't happen any more"
    steps = (NextStep("cancel it", commands.cancel(job)), _free(job))
    return Verdict("dependency-never", sentence, Certainty.PROVEN, (said,), next_steps=steps)


def _free(job: JobView) -> NextStep:
    return NextStep("start it without waiting for them", commands.update(job, "dependency="))


def _what(items: list[_Item], *, any_is_enough: bool) -> str:
    named = [one for one in items if one.job_id]
    if len(named) == 1:
        return f"job {named[0].job_id} {_KINDS.get(named[0].kind, 'to end')}"
    if not named:
        kind = items[0].kind if items else ""
        return "your jobs of the same name to end" if kind == "singleton" else "another job"
    ids = ", ".join(one.job_id for one in named[:5]) + (" and others" if len(named) > 5 else "")
    return f"{'any' if any_is_enough else 'all'} of the jobs {ids}"


def _state(one: _Item, cluster: ClusterView, now_s: float) -> Evidence:
    label, number = f"{one.kind}", one.job_id.partition("_")[0]
    for running in cluster.running:
        if running.job_id.partition("_")[0] == number:
            ends = running.ends_s
            until = "" if ends is None else f", for {span(ends - now_s)} at most"
            return Evidence(f"{one.job_id} runs{until}", "squeue", label, ends)
    for queued in cluster.queue:
        if queued.job_id.partition("_")[0] == number:
            return Evidence(f"{one.job_id} waits itself ({queued.reason})", "squeue", label)
    text = f"{one.job_id}: {_KINDS.get(one.kind, 'to end')}"
    return Evidence(text, "scontrol show job", label)
