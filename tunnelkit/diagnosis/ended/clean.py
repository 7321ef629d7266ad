"""Ended with 0: a step that failed unnoticed, or all is well; and what can't be known."""

from __future__ import annotations

from tunnelkit.diagnosis.ended.case import Case, black_box
from tunnelkit.diagnosis.ended.exceptions import one_line
from tunnelkit.diagnosis.ended.words import clock, memory_option
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

#: Below it there is no word on efficiency.
_SHORT_S = 60.0
_LITTLE = 0.25
_NICE = frozenset({"COMPLETED", "F", "X", "C"})


def hidden_step(case: Case) -> Verdict | None:
    """Rule 22: the script ended with 0, and a step of it failed."""
    if not case.hidden:
        return None
    steps = case.failed_steps
    return Verdict(
        "step-failed",
        f"ended with 0, but the script hid a failure: {steps[0].text}",
        Certainty.PROVEN if any(one.proven for one in steps) else Certainty.LIKELY,
        (
            *(Evidence(one.text, "sacct" if one.proven else "log") for one in steps[:5]),
            case.record(),
        ),
        next_steps=(
            NextStep("`set -e` at the script's beginning, or `srun ... || exit`"),
            NextStep("the last exception in its log", "tk logs --last-error"),
        ),
    )


def well(case: Case) -> Verdict | None:
    """Rule 23: all is well; with peaks, and what could be asked for less."""
    job = case.job
    if job is None or case.failed or case.state not in _NICE:
        return None
    if case.exit.code not in (0, None) or (case.exit.code is None and case.state != "COMPLETED"):
        return None
    because, steps = [case.record()], []
    peak = max((one.max_rss_bytes or 0 for one in case.end.steps), default=0)
    limit, ran_s = job.need.mem_bytes, case.ran_s
    long = ran_s is not None and ran_s >= _SHORT_S
    if peak:
        of = f" of {size(limit)}" if limit else ""
        because.append(Evidence(f"memory: {size(peak)}{of} at its highest sample", "sacct", "peak"))
    if long and peak and limit and peak < limit * _LITTLE:
        steps.append(
            NextStep("less memory may start sooner", f"tk up --mem {memory_option(peak * 1.5)}")
        )
    if ran_s is not None and long and job.time_limit_s and ran_s < job.time_limit_s * _LITTLE:
        of = f"{clock(ran_s)} of {clock(job.time_limit_s)}"
        steps.append(NextStep(f"it took {of}: a shorter --time may start sooner"))
    if case.failure is not None and not case.lines_after(case.failure.last_line - 1):
        text = f"its log ends with an exception, yet it ended with 0: {one_line(case.failure)}"
        because.append(Evidence(text, "log", "seen"))
    # A signal ended it: another task of it may have failed before, and only the log would say so.
    unsure = any(one.state == "CANCELLED" for one in case.end.steps) and not case.text.strip()
    certainty = Certainty.LIKELY if unsure else Certainty.PROVEN
    return Verdict("ok", "ended well", certainty, tuple(because), next_steps=tuple(steps))


def not_on_record(case: Case) -> Verdict | None:
    """The scheduler has forgotten it, or does not say how it ended."""
    last = case.last_line()
    seen = [Evidence(f"its log's last line: {last}", "log", "seen")] if last else []
    if case.failure is not None:
        seen.append(Evidence(one_line(case.failure), "log", "seen"))
    if case.job is None:
        left = "only its log is left" if case.text.strip() else "nor is its log where tk looks"
        return Verdict(
            "no-record",
            f"is not on record any more, {left}",
            Certainty.UNKNOWN,
            (case.record(), *seen),
            next_steps=(black_box(case),),
        )
    return Verdict(
        "exit-unknown",
        "has ended, and how is not on record",
        Certainty.UNKNOWN,
        (case.record(), *seen),
        next_steps=(black_box(case),),
    )
