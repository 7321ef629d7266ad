"""Ended at the time limit: working, or standing still. More time helps only the first."""

from __future__ import annotations

import re

from tunnelkit.diagnosis.ended.case import Case
from tunnelkit.diagnosis.ended.exceptions import one_line
from tunnelkit.diagnosis.ended.log.stepd import OF_STEPD
from tunnelkit.diagnosis.ended.words import KILL, TERM, clock, span
from tunnelkit.diagnosis.evidence.box import BoxSample
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

_PBS_WALLTIME = -29
#: `step 1200/5000`, `epoch 3 of 10`; tqdm's `120/500 [00:10<00:32`.
_STEPD = re.compile(OF_STEPD)
_PROGRESS = re.compile(
    r"\b(?P<what>[Ss]tep|[Ii]ter(?:ation)?|[Ee]poch|[Bb]atch)\b[ :=#\[(]{0,3}(?P<n>\d{1,9}) ?"
    r"(?:/|of) ?(?P<m>\d{1,9})|\b(?P<n2>\d{1,9})/(?P<m2>\d{1,9}) \[\d\d:\d\d"
)
#: Shares of a run: what counts as its end, and as a long silence.
_QUARTER, _LAST = 0.25, 0.1
#: From this share of its limit on a job may have reached it.
_NEARLY = 0.98
#: Slurm counts limits in minutes; a recorded TIMEOUT with a limit of 1 came after 25 s.
_ROUNDED_S = 60.0
#: A core-second in this many seconds of the last quarter is work.
_IDLE_SHARE = 0.01
#: A log that was written so shortly before the end outweighs a CPU that stood idle.
_AT_ONCE_S = 300.0
_MOST_MARGIN_S = 90.0
_SHORT_S = 60.0


def time_limit(case: Case) -> Verdict | None:
    """Rules 5 and 6: the time limit, with what it did until then."""
    if case.state == "TIMEOUT" and _at_limit(case) is False:
        return _before_limit(case)
    because = _reached(case)
    if not because:
        return None
    limit = case.job.time_limit_s if case.job is not None else None
    of = f" of {clock(limit)}" if limit else ""
    progress = _progress(case)
    activity = _activity(case, progress is not None)
    because += activity.evidence
    if progress is not None:
        because.append(progress.evidence)
    if case.failure is not None:
        because.append(Evidence(one_line(case.failure), "log", "also"))
    last = case.last_line()
    if last and not activity.evidence:
        because.append(Evidence(f"its log's last line: {last}", "log", "seen"))
    code, sentence, steps = _words(case, activity.kind, progress)
    # Slurm says TIMEOUT of a used-up budget, too: only a limit on record was surely reached.
    sure = activity.certain and (limit is not None or case.state != "TIMEOUT")
    return Verdict(
        code,
        f"reached its time limit{of}{sentence}",
        Certainty.PROVEN if sure else Certainty.LIKELY,
        tuple(because),
        next_steps=steps,
    )


def _reached(case: Case) -> list[Evidence]:
    found = []
    job = case.job
    if job is not None and (
        case.state == "TIMEOUT" or (job.exit_code == _PBS_WALLTIME and case.state in ("F", "X", ""))
    ):
        found.append(case.record())
    hit = case.hit("timeout")
    slurm = case.hit("ended-by-slurm")
    if slurm is not None and slurm.group("what") == "JOB" and slurm.group("why") == "TIME LIMIT":
        hit = slurm
    # An appended log may hold an earlier run's line, and PBS has a rule of its own.
    counts = case.state in ("TIMEOUT", "") or (case.state == "FAILED" and _at_limit(case))
    if hit is not None and case.failed and counts:
        found = found or [case.record()]
        found.append(Evidence(hit.text[:200], "log"))
    return found


def _at_limit(case: Case) -> bool | None:
    """Return whether it ran for as long as it was allowed to; None if that is not on record."""
    limit = case.job.time_limit_s if case.job is not None else None
    if case.job is not None and case.job.unlimited:
        return False
    if case.ran_s is None or not limit:
        return None
    return case.ran_s >= min(limit * _NEARLY, limit - _ROUNDED_S)


def _before_limit(case: Case) -> Verdict:
    """Return the verdict where Slurm says TIMEOUT, and the job's own limit was not reached."""
    limit = case.job.time_limit_s if case.job is not None else None
    after = f"after {clock(case.ran_s or 0)}" + (f" of {clock(limit)}" if limit else "")
    own = "before its own time limit" if limit else "and has no time limit of its own"
    because = [case.record()]
    if case.failure is not None:
        because.append(Evidence(one_line(case.failure), "log", "also"))
    if case.job is not None and case.job.reason == "InactiveLimit":
        return Verdict(
            "exit-unknown",
            f"was ended by Slurm {after}: its srun or salloc was silent (InactiveLimit)",
            Certainty.PROVEN,
            tuple(because),
            next_steps=(NextStep("keep its srun or salloc running; sbatch needs neither"),),
        )
    return Verdict(
        "exit-unknown",
        f"was ended by Slurm {after}, {own}: its reservation may have "
        "ended, or a budget may be used up",
        Certainty.LIKELY,
        tuple(because),
        excluded=(f"the time limit of {clock(limit)}",) if limit else (),
        next_steps=(NextStep("ask the administrator which limit it was"),),
    )


class _Activity:
    """The job's activity in its last quarter. kind: "working", "hang", "" if it is not known."""

    def __init__(self, kind: str, certain: bool, *evidence: Evidence) -> None:
        self.kind, self.certain, self.evidence = kind, certain, list(evidence)


_UNKNOWN = _Activity("", True)


def _activity(case: Case, progressed: bool) -> _Activity:
    found = _seen(case, progressed)
    if found.kind == "hang" and case.box is not None and case.box.holds_agent:
        # Its user may have stood at a breakpoint, or gone away.
        return _Activity("", True, *found.evidence)
    return found


def _seen(case: Case, progressed: bool) -> _Activity:
    """Return the activity by samples, CPU time, and the time of stdout: the box counts stderr."""
    found = None
    if case.box is not None and len(case.box.samples) > 2:
        found = _sampled(case.box.samples)
    if found is not None and found.kind != "hang":
        return found
    ran_s = case.ran_s
    if ran_s is None or ran_s < _SHORT_S:
        return found or _UNKNOWN
    idle = found or _idle(case, ran_s)
    written = _written(case)
    if written is None and found is not None and found.certain:
        return _Activity("hang", not _has_other_stdout(case), *found.evidence)
    if written is None:
        # CPU time is not counted everywhere, as of a container's processes.
        return _Activity("", True, *idle.evidence) if progressed and idle else idle or _UNKNOWN
    silent_s, seen = written
    if silent_s < (min(ran_s * _LAST, _AT_ONCE_S) if idle else ran_s * _LAST):
        return _Activity("working", False, seen)
    if idle and silent_s < ran_s * _QUARTER:
        return _Activity("", True, *idle.evidence, seen)
    return _Activity(idle.kind, idle.certain, *idle.evidence, seen) if idle else _UNKNOWN


def _idle(case: Case, ran_s: float) -> _Activity | None:
    cpu_s = sum(step.cpu_s or 0.0 for step in case.end.steps)
    if not 0 < cpu_s < ran_s * _IDLE_SHARE:
        return None
    return _Activity(
        "hang", False, Evidence(f"it used {cpu_s:.1f} s of CPU in {clock(ran_s)}", "sacct")
    )


def _has_other_stdout(case: Case) -> bool:
    return len(case.end.logs) > 1 and case.end.logs[0].size_bytes > 0


def _written(case: Case) -> tuple[float, Evidence] | None:
    """Return for how long stdout was silent at the end; slurmstepd's last words go to stderr."""
    job = case.job
    if job is None or job.end_s is None or len(case.end.logs) < 2 or case.doubt() is not None:
        return None
    out = case.end.logs[0]
    last = out.text[-2000:]
    if out.written_s is None or not out.size_bytes or _STEPD.search(last) or "slurmstepd" in last:
        return None
    silent_s = job.end_s - out.written_s
    text = f"stdout was written last {span(silent_s)} before the end"
    return silent_s, Evidence(text, "stat", time_s=out.written_s)


def _sampled(samples: tuple[BoxSample, ...]) -> _Activity | None:
    """Judge by the samples of the last quarter, all ranks together."""
    first_s, last_s = samples[0].time_s, samples[-1].time_s
    since_s = last_s - (last_s - first_s) * _QUARTER
    tail = [one for one in samples if one.time_s >= since_s]
    if last_s - first_s < _SHORT_S or len(tail) < 2:
        return None
    cpu_s = _rise([(one.rank, one.cpu_s) for one in tail])
    log_bytes = _rise([(one.rank, one.log_bytes) for one in tail])
    if cpu_s is None:
        return None
    length_s = last_s - tail[0].time_s
    busy = max((one.gpu_busy or 0.0 for one in tail), default=0.0)
    text = f"in its last {span(length_s)} it used {cpu_s:.1f} s of CPU"
    text += f" and wrote {log_bytes:.0f} bytes of log" if log_bytes is not None else ""
    seen = Evidence(text, "black box")
    if cpu_s >= length_s * _IDLE_SHARE or busy > 0:
        return _Activity("working", True, seen)
    if log_bytes:
        return _Activity("working", False, seen)
    return _Activity("hang", log_bytes is not None, seen)


def _rise(values: list[tuple[int | None, float | int | None]]) -> float | None:
    """Add up what each rank's total rose by; None if nothing was counted."""
    ranks: dict[int | None, list[float]] = {}
    for rank, value in values:
        if value is not None:
            ranks.setdefault(rank, []).append(float(value))
    rises = [max(0.0, all_[-1] - all_[0]) for all_ in ranks.values() if len(all_) > 1]
    return sum(rises) if rises else None


class _Progress:
    """The last `N of M` in the log."""

    def __init__(self, what: str, n: int, m: int) -> None:
        self.n, self.m = n, m
        self.text = f"{what} {n} of {m}"
        self.evidence = Evidence(f"the log shows {self.text}", "log", "seen")


def _progress(case: Case) -> _Progress | None:
    for line in reversed(case.lines[-400:]):
        found = list(_PROGRESS.finditer(line[:2000]))
        if found:
            match = found[-1]
            n, m = int(match["n"] or match["n2"]), int(match["m"] or match["m2"])
            if 0 < n <= m:
                return _Progress((match["what"] or "step").lower(), n, m)
    return None


def _words(
    case: Case, kind: str, progress: _Progress | None
) -> tuple[str, str, tuple[NextStep, ...]]:
    enough = _enough(case, progress)
    more = (
        NextStep("with more time", f"tk up --time {enough}")
        if enough
        else NextStep("with more time: --time")
    )
    checkpoint = NextStep("or go on from a checkpoint, in several shorter jobs")
    stacks = NextStep("see where it stands still", "tk loop")
    at = f", at {progress.text}" if progress is not None else ""
    if kind == "working":
        return "timeout-working", f"; it worked until then{at}", (more, checkpoint)
    if kind == "hang":
        sentence = "; it had stood still before: more time would not help"
        return "timeout-hang", sentence, (stacks,)
    sentence = f"{at}; whether it worked until then is not on record"
    return "timeout", sentence, (more, NextStep("if it stood still, see where", "tk loop"))


def _enough(case: Case, progress: _Progress | None) -> str:
    """Return a time limit, by the progress and a quarter more; "" if it shows too little."""
    limit = case.job.time_limit_s if case.job is not None else None
    if progress is None or not limit or progress.n * 50 < progress.m:
        return ""
    minutes = -(-int(limit * progress.m / progress.n * 1.25) // 60)
    return f"{minutes // 60}:{minutes % 60:02}:00"


def near_limit(case: Case) -> bool:
    """True if a signal came when the time was up, and nothing else says so."""
    limit = case.job.time_limit_s if case.job is not None else None
    ran_s = case.ran_s
    return (
        case.exit.signal in (KILL, TERM)
        and limit is not None
        and ran_s is not None
        and 0 <= ran_s - limit <= _MOST_MARGIN_S
    )
