"""Ended with 0: a step that failed unnoticed, or all is well; and what can't be known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunnelkit.diagnosis.ended.case import Case, black_box
from tunnelkit.diagnosis.ended.exceptions import one_line
from tunnelkit.diagnosis.ended.launch import NOT_FOUND
from tunnelkit.diagnosis.ended.pbs import PBS_ENDS
from tunnelkit.diagnosis.ended.record.failed_steps import SHELLS
from tunnelkit.diagnosis.ended.words import clock, memory_option
from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.sizes import size
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

#: Below it there is no word on efficiency.
_SHORT_S = 60.0
_LITTLE = 0.25
#: The program wrote more than this after an exception: it was handled.
_MOST_AFTER = 5
#: By these a part of the job failed; by one that Python raised only where nothing handled it.
_FAULTS = frozenset({"oom-limit", "disk-full", "quota-full"})
_BY_PYTHON = re.compile(r"\[Errno \d")
#: bash on a program that it waited for. TERM is how scripts end their helpers.
_BY_SIGNAL = re.compile(
    r"^\S+: line \d+: +\d+ (?:Killed|Segmentation fault|Aborted|Bus error|Illegal instruction|"
    r"Floating point exception)\b"
)
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
    because, steps, ran_s = [case.record()], [], case.ran_s
    long = ran_s is not None and ran_s >= _SHORT_S
    used = _memory(case, job)
    if used is not None:
        because.append(used.evidence())
        if long and used.is_node and used.limit and used.peak < used.limit * _LITTLE:
            option = memory_option(used.peak * 1.5)
            steps.append(NextStep("less memory may start sooner", f"tk up --mem {option}"))
    if ran_s is not None and long and job.time_limit_s and ran_s < job.time_limit_s * _LITTLE:
        of = f"{clock(ran_s)} of {clock(job.time_limit_s)}"
        steps.append(NextStep(f"it took {of}: a shorter --time may start sooner"))
    seen = _fault(case)
    if seen:
        because.append(Evidence(seen, "log", "seen"))
    # A signal ended it: another task of it may have failed before, and only the log would say so.
    unsure = any(one.state == "CANCELLED" for one in case.end.steps) and not case.text.strip()
    shells = (one for one in case.end.steps if one.name in SHELLS)
    unsure = unsure or any(one.exit_code or one.state == "OUT_OF_MEMORY" for one in shells)
    certainty = Certainty.LIKELY if unsure or seen else Certainty.PROVEN
    # What was seen is certain; what it means is not.
    fact = f"ended with 0, but its log shows: {seen}" if seen else ""
    sentence = fact or "ended well"
    return Verdict("ok", sentence, certainty, tuple(because), next_steps=tuple(steps), fact=fact)


def _fault(case: Case) -> str:
    """Return the last line of the log by which a part of the job failed; "" if there is none.

    An exception far above the end was handled."""
    found = case.failure
    if found is not None and case.lines_after(found.last_line - 1) <= _MOST_AFTER:
        return one_line(found)
    hits = [one.text for one in case.hits if one.mark.code in _FAULTS]
    said = [text for text in hits if not _BY_PYTHON.search(text)]
    if said:
        return said[-1][:200]
    patterns = (_BY_SIGNAL, *NOT_FOUND)
    lines = (line[:1000] for line in reversed(case.lines))
    return next((one[:200] for one in lines if any(it.match(one) for it in patterns)), "")


@dataclass(frozen=True, slots=True)
class _Memory:
    """Memory used of a limit. is_node: all of one node's, and the limit is a node's, too."""

    peak: int
    limit: int | None
    is_node: bool
    whose: str
    source: str

    def evidence(self) -> Evidence:
        of = f" of {size(self.limit)}" if self.limit else ""
        text = f"memory: {size(self.peak)}{of}{self.whose} at its highest sample"
        return Evidence(text, self.source, "peak")


def _memory(case: Case, job: JobView) -> _Memory | None:
    """Return the highest sample of memory; None if there is none."""
    steps = [one for one in case.end.steps if one.max_rss_bytes]
    peak = max((one.max_rss_bytes or 0 for one in steps), default=0)
    if not peak:
        return None
    if job.native_state in PBS_ENDS:
        total = job.mem_total_bytes
        return _Memory(peak, total, job.nodes_wanted == 1, "", "qstat: resources_used.mem")
    if not _are_alone(case.end.steps):
        return _Memory(peak, None, False, ", its largest task", "sacct")
    # The script's own processes run beside its steps.
    own = sum(one.max_rss_bytes or 0 for one in steps if one.step == "batch")
    others = max((one.max_rss_bytes or 0 for one in steps if one.step != "batch"), default=0)
    return _Memory(own + others, job.need.mem_bytes, True, "", "sacct")


def _are_alone(steps: tuple[StepView, ...]) -> bool:
    """Return True if each step is one task, and runs when no other does, but the script."""
    if any(one.tasks != 1 for one in steps if one.step != "extern"):
        return False
    ends = float("-inf")
    some = [one for one in steps if one.step not in ("batch", "extern")]
    for one in sorted(some, key=lambda one: one.start_s or 0.0):
        if len(some) > 1 and (one.start_s is None or one.end_s is None or one.start_s < ends):
            return False
        ends = one.end_s or ends
    return True


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
