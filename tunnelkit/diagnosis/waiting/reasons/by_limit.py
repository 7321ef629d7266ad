"""A job that waits for a limit, or is over one by itself: the reason's word, and LIMIT(USED)."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.cluster import ClusterView, Limit, RunningJob
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict
from tunnelkit.diagnosis.waiting import commands
from tunnelkit.diagnosis.waiting.reasons.amounts import (
    amount,
    asked,
    asked_exactly,
    minutes_that_fit,
    part,
)
from tunnelkit.diagnosis.waiting.reasons.limit_words import LimitWord, counts
from tunnelkit.diagnosis.waiting.reasons.time_words import span
from tunnelkit.diagnosis.waiting.slurm_reasons import Reason

_SOURCE = "scontrol show assoc_mgr"
_MOST_JOBS = 5
_WITH_TRES = "squeue --me -t R -O JobID:20,EndTime:22,tres-alloc:80"
#: The end of a limit's name -> for whom it is.
_FOR = {
    "PU": "for each user",
    "PA": "for each account",
    "PJ": "for one job",
    "PN": "on one node of a job",
}


def judge_limit(job: JobView, cluster: ClusterView, now_s: float, reason: Reason) -> Verdict:
    """Return the verdict on a job whose reason names a limit."""
    word = reason.limit
    limits = [] if word is None else _sorted(job, cluster, word)
    said = Evidence(f"reason {job.reason}", "scontrol show job")
    because = (said, *(_evidence(one) for one in limits[:3]))
    if word is None or not limits:
        return _without_numbers(job, cluster, reason, because)
    best = limits[0]
    if reason.code == "budget":
        return _budget(job, best, because)
    if _passes(job, best):
        return _without_numbers(job, cluster, reason, because)
    if reason.code == "limit-job" or (_alone(job, best) and _is_its_own(job, best)):
        return _too_much(job, best, because)
    code = _code(word, best)
    used = f"{part(best, best.used)} in use"
    sentence = f"waits for a limit of {best.owner}: {_most(best)}, {used}"
    certainty = Certainty.PROVEN if _is_its_own(job, best) else Certainty.LIKELY
    own = _own(job, cluster, word, best) if code == "limit-user" else []
    mine = _mine(own, now_s)
    steps = _steps(code, job, own, best, word)
    return Verdict(code, sentence, certainty, because + mine, next_steps=steps)


def _without_numbers(
    job: JobView, cluster: ClusterView, reason: Reason, because: tuple[Evidence, ...]
) -> Verdict:
    begin = "can never start:" if reason.code == "limit-job" else "waits:"
    if reason.sentence.startswith("a limit"):
        begin = "waits for"
    sentence = f"{begin} {reason.sentence}"
    word = reason.limit
    of_user = reason.code == "limit-user"
    own = _own(job, cluster, word, None) if of_user and word is not None else []
    steps = _steps(reason.code, job, own, None, word)
    return Verdict(reason.code, sentence, Certainty.PROVEN, because, next_steps=steps)


def _sorted(job: JobView, cluster: ClusterView, word: LimitWord) -> list[Limit]:
    """Return the limits that the reason can mean: those that hold the job back first."""
    found = [one for one in cluster.limits if counts(word, one.name, one.what)]
    return sorted(
        found,
        key=lambda one: (
            _passes(job, one),
            not _is_its_own(job, one),
            -one.used / max(one.limit, 1e-9),
        ),
    )


def _passes(job: JobView, limit: Limit) -> bool:
    """True if the job fits in what is left of the limit."""
    wanted = asked(job, limit)
    if limit.name.startswith("Min"):
        return wanted is not None and wanted >= limit.limit
    if limit.name == "GrpWall" or wanted is None:
        return limit.used < limit.limit and wanted is not None
    if limit.name == "GrpTRESMins" and limit.used >= limit.limit:
        return False
    return limit.used + wanted <= limit.limit


def _alone(job: JobView, limit: Limit) -> bool:
    """True if the job asks for more than the whole limit."""
    wanted = asked(job, limit)
    return limit.name not in ("GrpWall", "GrpTRESMins") and (wanted or 0) > limit.limit


def _code(word: LimitWord, limit: Limit) -> str:
    if limit.owner.startswith("user ") and word.code == "limit-account":
        return "limit-user"  # the association is the user's own
    return word.code


def _is_its_own(job: JobView, limit: Limit) -> bool:
    """True if the limit is surely one of this job: not of a QOS that may be its partition's."""
    is_qos = limit.owner.startswith("QOS ") and not limit.partition
    return not is_qos or limit.owner == f"QOS {job.qos}"


def _too_much(job: JobView, limit: Limit, because: tuple[Evidence, ...]) -> Verdict:
    wanted = asked(job, limit)
    of_job = limit.name.startswith("Min")
    asks = "" if wanted is None else f"it asks for {amount(limit, wanted)}, and "
    sentence = f"can never start: {asks}{limit.owner} " + (
        f"demands at least {amount(limit, limit.limit)} of each job"
        if of_job
        else f"allows {_most(limit)}"
    )
    sure = wanted is not None and asked_exactly(job, limit) and _is_its_own(job, limit)
    minutes = minutes_that_fit(job, limit)
    shorter = (_shorter(job, minutes),) if minutes >= 1 and not of_job else ()
    steps = (*shorter, _leave(job, "cancel it, and ask for what is allowed"))
    certainty = Certainty.PROVEN if sure else Certainty.LIKELY
    return Verdict("limit-job", sentence, certainty, because, next_steps=steps)


def _budget(job: JobView, limit: Limit, because: tuple[Evidence, ...]) -> Verdict:
    used = f"{part(limit, limit.used)} of {amount(limit, limit.limit)}"
    certainty = Certainty.PROVEN if _is_its_own(job, limit) else Certainty.LIKELY
    then: tuple[str, ...] = ()
    if limit.used >= limit.limit:
        sentence = f"will not start: {limit.owner} has used up its budget, {used}"
        then = ("the end of other jobs does not free a budget; only its decay or reset does",)
    else:
        wanted = asked(job, limit)
        asks = "" if wanted is None else f": it may use {amount(limit, wanted)}"
        sentence = f"needs more than is left of the budget of {limit.owner}{asks}; {used} are used"
        if _passes(job, limit):
            sentence += ", and running jobs may use the rest"
            certainty = Certainty.LIKELY
    steps = _steps("budget", job, [], limit)
    return Verdict("budget", sentence, certainty, because, then, next_steps=steps)


def _most(limit: Limit) -> str:
    together = "for all its jobs together"
    if limit.owner.startswith("user ") or limit.name in ("MaxJobs", "MaxSubmitJobs"):
        together = "for you"
    whom = _FOR.get(limit.name[-2:], together)
    still = " still to run" if "RunMins" in limit.name else ""
    once = " at once" if limit.what == "jobs" else ""
    return f"{amount(limit, limit.limit)}{once}{still} {whom}"


def _evidence(limit: Limit) -> Evidence:
    of_job = limit.name.endswith(("PJ", "PN"))
    used = "" if of_job else f", {part(limit, limit.used)} used"
    least = "at least" if limit.name.startswith("Min") else "at most"
    text = f"{limit.owner} {limit.name}: {least} {amount(limit, limit.limit)}{used}"
    return Evidence(text, _SOURCE, "limit")


def _mine(own: list[RunningJob], now_s: float) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(f"{one.job_id} (yours){_until(one, now_s)}", "squeue", "running", one.ends_s)
        for one in own[:_MOST_JOBS]
    )


def _own(
    job: JobView, cluster: ClusterView, word: LimitWord, limit: Limit | None
) -> list[RunningJob]:
    """Return the user's running jobs that surely count in the limit, the first to end first.

    Another job's end frees nothing, so its QOS or account must be known."""
    found = [
        one
        for one in cluster.running
        if one.user and one.user == job.user and _is_counted(one, job, cluster, word, limit)
    ]
    return sorted(found, key=lambda one: (one.ends_s is None, one.ends_s or 0.0))


def _is_counted(
    one: RunningJob, job: JobView, cluster: ClusterView, word: LimitWord, limit: Limit | None
) -> bool:
    if limit is not None and limit.owner.startswith("QOS "):
        name, _, partition = limit.owner.removeprefix("QOS ").partition(" of partition ")
        return one.qos == name or bool(partition and one.partition == partition)
    if limit is not None or word.owner != "QOS":
        return bool(job.account) and one.account == job.account
    # Of the job's QOS or its partition's: only a job that is in both counts for sure.
    asked = job.partition.split(",")
    shared = [part.name for part in cluster.partitions if part.qos and part.name in asked]
    in_both = not shared or [one.partition] == shared
    return bool(job.qos) and one.qos == job.qos and in_both


def _until(one: RunningJob, now_s: float) -> str:
    return "" if one.ends_s is None else f", ends in {span(one.ends_s - now_s)} at the latest"


def _steps(
    code: str,
    job: JobView,
    own: list[RunningJob],
    limit: Limit | None,
    word: LimitWord | None = None,
) -> tuple[NextStep, ...]:
    """own: running jobs of the user that count in the limit."""
    steps: list[NextStep] = []
    if own and word is not None and word.what == "gres":
        # Which of them have GPUs is not known here: the end of another frees none.
        steps.append(NextStep("wait, or end one of your jobs that has some", _WITH_TRES))
    elif own:
        steps.append(NextStep("wait, or end one of your jobs", f"scancel {own[0].job_id}"))
    if limit is not None and (minutes := minutes_that_fit(job, limit)) >= 1:
        steps.append(_shorter(job, minutes))
    if code == "limit-job":
        steps.append(_leave(job, "cancel it, and ask for less"))
    if code == "budget":
        steps.append(NextStep("ask the owner of the account or an administrator for more"))
    what = "qos" if code == "limit-qos" or (limit and limit.owner.startswith("QOS")) else "account"
    if limit is not None and limit.partition:
        what = "partition"
    if code != "limit-job":
        name = f"{what}=NAME"
        steps.append(NextStep("take another", commands.update(job, name)))
        show = "sacctmgr show assoc user=$USER format=account,partition,qos%40"
        steps.append(NextStep("those open to you", show))
    return tuple(steps)


def _shorter(job: JobView, minutes: int) -> NextStep:
    command = commands.update(job, f"timelimit={minutes}")
    return NextStep(f"up to {span(minutes * 60)} is allowed", command)


def _leave(job: JobView, text: str) -> NextStep:
    return NextStep(text, commands.cancel(job))
