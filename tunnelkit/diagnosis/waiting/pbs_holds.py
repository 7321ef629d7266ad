"""The verdict on a job of PBS that is held (H), has a begin time (W), or is being moved (T)."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

#: As the adapter joins Hold_Types and comment.
_HOLD = re.compile(r"Hold_Types = (\S+)(?:; (.*))?", re.DOTALL)
_BY = re.compile(
    r"Job held by (?P<hook>')?(?P<who>[^' ]+)(?(hook)' hook) on (?P<when>.*)", re.DOTALL
)
_FAILED = re.compile(
    r".*(too many failed attempts to run|provisioning failed to start)", re.IGNORECASE | re.DOTALL
)
_SOURCE = "qstat -f: Hold_Types, comment"
#: `depend = afterok:12.login@login:13.login@login`
_DEPENDS = {
    "after": "to begin",
    "afterok": "to end with exit code 0",
    "afternotok": "to end with an error",
    "afterany": "to end",
    "runone": "to be the one of them that runs",
    "syncto": "to begin with it",
}


def judge_state(job: JobView, now_s: float) -> Verdict | None:
    """Return the verdict that the job's state alone leads to; None in state Q."""
    if job.native_state == "W":
        return _begin(job, now_s)
    if job.native_state == "T":
        because = (Evidence("job_state = T", "qstat -f"),)
        return Verdict(
            "preparing", "is on its way to another queue or server", Certainty.PROVEN, because,
            next_steps=(NextStep("wait"),),
        )  # fmt: skip
    held = _HOLD.fullmatch(" ".join((job.reason or "").split()))
    return _held(job, held[1], (held[2] or "").strip()) if held else None


def _held(job: JobView, types: str, comment: str) -> Verdict:
    by = _BY.fullmatch(comment)
    seen = [Evidence(f"Hold_Types = {types}", _SOURCE, "hold")]
    if comment:
        seen.append(Evidence(comment[:400], _SOURCE, "comment"))
    if _FAILED.match(comment):
        return _launch_failed(job, seen)
    waits_for = dependency_words(job.dependency)
    if waits_for and not by and "s" in types:
        seen.append(Evidence(f"depend = {job.dependency}"[:400], "qstat -f: depend"))
        return Verdict(
            "dependency", f"waits for {waits_for}", Certainty.PROVEN, tuple(seen),
            next_steps=(
                NextStep("wait; PBS deletes the job if that can't happen any more"),
                NextStep("take the dependency away", f"qalter -W depend= {job.job_id}"),
            ),
        )  # fmt: skip
    if "security breach" in comment:
        return _by_others("is held by PBS: its temporary directory was not safe", seen)
    if by and by["hook"]:
        return _by_others(f"is held by the site's rule (hook {by['who']})", seen)
    return _by_types(job, types, by["who"] if by else "", seen)


def _by_types(job: JobView, types: str, who: str, seen: list[Evidence]) -> Verdict:
    by = "" if not who or who == job.user else f" ({who})"
    if "s" in types:
        return _by_others(f"is held by an administrator{by} or by PBS itself", seen)
    if "o" in types:
        return _by_others(f"is held by an operator of the cluster{by}", seen)
    if "p" in types:
        step = NextStep("give PBS the new password", "pbs_password")
        words = "is held: the password that PBS has of you is wrong"
    else:
        step = NextStep("release it", f"qrls {job.job_id}")
        words = f"is held{by or ' by you'}, and you can release it"
    return Verdict("held-you", words, Certainty.PROVEN, tuple(seen), next_steps=(step,))


def _by_others(sentence: str, seen: list[Evidence]) -> Verdict:
    step = NextStep("ask the administrator; `qrls` is refused to you")
    return Verdict("held-admin", sentence, Certainty.PROVEN, tuple(seen), next_steps=(step,))


def _launch_failed(job: JobView, seen: list[Evidence]) -> Verdict:
    times = f" {job.restarts} times" if job.restarts > 1 else ""
    return Verdict(
        "launch-failed",
        f"is held: PBS tried{times} to start it and failed each time",
        Certainty.PROVEN,
        (*seen, Evidence(f"run_count = {job.restarts}", "qstat -f: run_count")),
        next_steps=(
            NextStep("ask the administrator to release it (`qrls`), and why its nodes refuse it"),
            NextStep("or cancel it, and ask for other nodes", f"qdel {job.job_id}"),
        ),
    )


def _begin(job: JobView, now_s: float) -> Verdict:
    left = None if job.eligible_s is None else job.eligible_s - now_s
    known = left is not None and left > 0
    sentence = "waits for the time at which it may start" + (
        f", in {span(left)}" if left is not None and left > 0 else ""
    )
    seen = (Evidence("job_state = W", "qstat -f: Execution_Time", time_s=job.eligible_s),)
    code = "requeued" if job.restarts and not known else "begin"
    return Verdict(
        code, sentence, Certainty.PROVEN if known else Certainty.LIKELY, seen,
        next_steps=(NextStep("wait, or set another time", f"qalter -a TIME {job.job_id}"),),
    )  # fmt: skip


def dependency_words(text: str) -> str:
    """Return `job 12.login to end with exit code 0` for what holds the job; "" if nothing does."""
    found = []
    for part in text.split(","):
        kind, _, rest = part.strip().partition(":")
        jobs = [one.partition("@")[0] for one in rest.split(":") if one]
        if kind == "on" and rest:
            found.append(f"{jobs[0]} other jobs that name it")
        elif kind in _DEPENDS and jobs:
            noun = "job" if len(jobs) == 1 else "jobs"
            shown = ", ".join(jobs[:5]) + (" ..." if len(jobs) > 5 else "")
            found.append(f"{noun} {shown} {_DEPENDS[kind]}")
    return ", and for ".join(found[:3])


def span(seconds: float) -> str:
    """Return a time span in words: `50 min`, `2 h 10 min`, `3 days`."""
    minutes = max(1, round(seconds / 60))
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} days"
