"""The verdict on a job that has ended: the first rule that holds wins, later ones may add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tunnelkit.diagnosis.ended.boxed import at_the_end, box_alone, earlier, likely_memory
from tunnelkit.diagnosis.ended.case import Case, make_case
from tunnelkit.diagnosis.ended.clean import hidden_step, not_on_record, well
from tunnelkit.diagnosis.ended.exceptions import exception, not_there
from tunnelkit.diagnosis.ended.files import files
from tunnelkit.diagnosis.ended.gpu import build_mismatch, gpu_failed, gpu_memory
from tunnelkit.diagnosis.ended.last_words import last_words
from tunnelkit.diagnosis.ended.launch import no_output, not_started
from tunnelkit.diagnosis.ended.memory import counted_at_limit, counted_on_node, recorded
from tunnelkit.diagnosis.ended.pbs import PBS_ENDS, pbs_ending, pbs_moved, pbs_record
from tunnelkit.diagnosis.ended.ranks import collective, first_rank_signalled, worker
from tunnelkit.diagnosis.ended.scheduler_end import cancelled, ended_by_scheduler
from tunnelkit.diagnosis.ended.shell import set_up, shell
from tunnelkit.diagnosis.ended.signals import crashed, killed, terminated, unexplained
from tunnelkit.diagnosis.ended.time_limit import time_limit
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty, Evidence, NextStep, Verdict

Rule = Callable[[Case], Verdict | None]


def by_pbs(case: Case) -> Verdict | None:
    """Return the verdict if PBS itself ended the job, or a user deleted it."""
    job = case.job
    if job is None or job.native_state not in PBS_ENDS:
        return None
    return pbs_moved(job) or pbs_record(job, case.end) or pbs_ending(job)


#: In the order in which they win. What is not there is asked before any other exception.
RULES: tuple[Rule, ...] = (
    counted_at_limit,
    counted_on_node,
    by_pbs,
    recorded,
    likely_memory,
    ended_by_scheduler,
    time_limit,
    cancelled,
    no_output,
    not_started,
    gpu_failed,
    gpu_memory,
    build_mismatch,
    first_rank_signalled,
    collective,
    worker,
    files,
    not_there,
    exception,
    crashed,
    killed,
    terminated,
    last_words,
    set_up,
    shell,
    unexplained,
    hidden_step,
    well,
    box_alone,
    not_on_record,
)


#: A log alone tells no more than these; without an exit code it proves nothing.
LOG_RULES = (
    recorded,
    ended_by_scheduler,
    time_limit,
    cancelled,
    not_started,
    gpu_memory,
    build_mismatch,
    first_rank_signalled,
    collective,
    worker,
    files,
    not_there,
    exception,
    crashed,
    last_words,
    set_up,
    shell,
    not_on_record,
)


def judge_end(
    job: JobView | None, end: EndView, now_s: float, box: BoxView | None = None
) -> tuple[Verdict, ...]:
    """Return how the job ended. job: None if the scheduler has no record of it any more.

    A second verdict says that the script hid the failure."""
    whole = make_case(job, end, now_s, box)
    case = at_the_end(whole)
    first = _with_doubt(_first(case), case)
    if case.log_alone or case.hidden:
        first = replace(first, fact="")  # nothing says that the job failed
    first = replace(first, because=(*first.because, *earlier(whole)))
    first = _with_array(_with_restarts(first, case), end)
    hidden = hidden_step(case)
    if hidden is not None and hidden.code != first.code:
        return (first, hidden)
    return (first,)


def _first(case: Case) -> Verdict:
    if not case.log_alone:
        return next(found for rule in RULES if (found := rule(case)) is not None)
    return _at_most_likely(next(found for rule in LOG_RULES if (found := rule(case)) is not None))


def _with_doubt(verdict: Verdict, case: Case) -> Verdict:
    """Lower what only the log proves, if the log may be another job's."""
    proven = verdict.certainty is Certainty.PROVEN
    doubt = case.doubt()
    earlier = case.may_be_earlier() if doubt is None and proven else None
    if doubt is None and earlier is None:
        return verdict
    alone = _first(make_case(case.job, replace(case.end, logs=()), case.now_s, case.box))
    sure = alone.certainty is Certainty.PROVEN and alone.code == verdict.code
    # A log that was read in vain is no doubt.
    seen = doubt or (None if sure else earlier)
    because = verdict.because if seen is None else (*verdict.because, seen)
    return replace(verdict if sure else _at_most_likely(verdict), because=because)


def _at_most_likely(verdict: Verdict) -> Verdict:
    proven = verdict.certainty is Certainty.PROVEN
    return replace(verdict, certainty=Certainty.LIKELY) if proven else verdict


def _with_array(verdict: Verdict, end: EndView) -> Verdict:
    """Add which element of an array this is about, and how the others ended."""
    if not end.array:
        return verdict
    step = NextStep(f"element {end.element} alone, with its log", f"tk why {end.element}")
    because = (Evidence(end.array, "sacct", "array"), *verdict.because)
    # One that was not counted may have failed.
    unsure = verdict.code == "ok" and not end.array_whole
    return replace(
        verdict,
        certainty=Certainty.LIKELY if unsure else verdict.certainty,
        because=because,
        next_steps=(step, *verdict.next_steps),
    )


def _with_restarts(verdict: Verdict, case: Case) -> Verdict:
    """Add the runs before this one."""
    restarts = case.job.restarts if case.job is not None else 0
    if not restarts:
        return verdict
    times = "once" if restarts == 1 else f"{restarts} times"
    text = f"it had gone back into the queue {times}; this is about its last run"
    return replace(
        verdict, because=(*verdict.because, Evidence(text, "the scheduler's record", "earlier"))
    )
