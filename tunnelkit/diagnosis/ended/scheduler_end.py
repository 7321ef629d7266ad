"""Ended by the scheduler or by a user: preempted, node failed, cancelled."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.exceptions import one_line
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

_REQUEUE = NextStep("a job that comes back by itself", "tk up --requeue")
_CHECKPOINT = NextStep("write a checkpoint now and then, so that little is lost")
#: state -> code, sentence, what to do.
_STATES = {
    "PREEMPTED": (
        "preempted",
        "was preempted: a job of higher priority took its nodes",
        (_REQUEUE, _CHECKPOINT),
    ),
    "NODE_FAIL": ("node-failed", "ended because a node of it failed", (_REQUEUE, _CHECKPOINT)),
    "BOOT_FAIL": (
        "boot-failed",
        "ended because a node of it did not boot",
        (NextStep("ask again; the scheduler takes another node", "tk up"),),
    ),
    "DEADLINE": (
        "deadline",
        "was ended at the deadline that it was submitted with",
        (NextStep("submit it with a later --deadline, or with none"),),
    ),
    "REVOKED": (
        "revoked",
        "was taken over by another cluster of the federation",
        (NextStep("ask for it there", "squeue --federation"),),
    ),
}
#: `DUE TO ...` -> state. A time limit has a rule of its own.
_WHYS = {"PREEMPTION": "PREEMPTED", "NODE FAILURE": "NODE_FAIL"}
_PBS_NODE_LOST = -20
#: Slurm's reason for a job whose dependency failed (kill_invalid_depend).
_DROPPED = "DependencyNeverSatisfied"
_PBS_BY = re.compile(r"and terminated by (\S+)")


def ended_by_scheduler(case: Case) -> Verdict | None:
    """Rule 4: preempted, a node failed, and the like."""
    state, because = case.state, [case.record()]
    hit = case.hit("ended-by-slurm")
    # Back in the queue it may have been cancelled since: a clear state wins.
    # Of a job that ran again the line is an earlier run's.
    again = state == "FAILED" and case.job is not None and case.job.restarts > 0
    certainty = Certainty.PROVEN
    if state in ("FAILED", "") and case.failed and hit is not None and not again:
        by_line = _WHYS.get(hit.group("why")) if hit.group("what") == "JOB" else None
        if by_line is not None:
            because.append(Evidence(hit.text[:200], "log"))
            certainty = Certainty.LIKELY if case.exit.code else certainty
        state = by_line or state
    if case.job is not None and case.job.exit_code == _PBS_NODE_LOST:
        state, certainty = "NODE_FAIL", Certainty.PROVEN
    if state not in _STATES:
        return None
    code, sentence, steps = _STATES[state]
    nodes = case.job.nodes if case.job is not None else ()
    before = [one for one in case.end.earlier if one.state.split()[:1] == [state]]
    if code == "node-failed" and before and nodes:
        steps = (NextStep("without the nodes of this run: --exclude " + ",".join(nodes)), *steps)
    because += [
        Evidence(f"an earlier run ended so, too: {one.state}", "sacct", time_s=one.end_s)
        for one in before[-3:]
    ]
    return Verdict(code, sentence, certainty, tuple(because), next_steps=steps)


def cancelled(case: Case) -> Verdict | None:
    """Rule 7: by a user. A step's CANCELLED only means that a signal ended it."""
    comment = (case.job.reason or "") if case.job is not None else ""
    by_pbs = _PBS_BY.search(comment)
    hit = case.hit("ended-by-slurm")
    in_log = case.log_alone and hit is not None and hit.group("what") == "JOB"
    if case.state != "CANCELLED" and not by_pbs and not (in_log and hit and not hit.group("why")):
        return None
    who = f" by {by_pbs[1]}" if by_pbs else _who(case)
    never = case.job is not None and case.job.start_s is None
    because = [case.record()]
    if comment == _DROPPED and not who and not case.ran_s:
        return Verdict(
            "cancelled",
            "was dropped by Slurm before it ran: its dependency failed and can't be met any more",
            Certainty.PROVEN,
            tuple(because),
            next_steps=(NextStep("submit it again once the job that it waits for has ended well"),),
        )
    if hit is not None:
        because.append(Evidence(hit.text[:200], "log"))
    if case.failure is not None:
        # It may be why somebody cancelled it, or what the signal did.
        because.append(Evidence(one_line(case.failure), "log", "also"))
    return Verdict(
        "cancelled",
        f"was cancelled{who}" + (", before it ran" if never else ""),
        Certainty.PROVEN,
        tuple(because),
    )


def _who(case: Case) -> str:
    words = case.end.job.state if case.end.job is not None else ""
    if not words and case.job is not None:
        words = case.job.native_state
    match = re.search(r"CANCELLED by ([0-9]{1,10})", words)
    if match is None:
        return ""
    uid = int(match[1])
    if uid == case.end.own_uid:
        return " by yourself"
    name = dict(case.end.users).get(uid) or f"uid {uid}"
    return f" by {name}" + (" (an administrator)" if uid == 0 else "")
