"""Ended jobs for tests of the rules: a record as Slurm gives it, and a log."""

from __future__ import annotations

from tunnelkit.diagnosis.ended.rules import judge_end
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.evidence.job import GpuNeed, JobView, NodeNeed
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.model import JobState

START_S = 1_790_000_000.0


def job(
    state: str,
    code: int | None = 0,
    signal: int | None = 0,
    *,
    ran_s: float = 600.0,
    limit_s: int = 3600,
    reason: str | None = None,
    restarts: int = 0,
    gpus: int = 0,
) -> JobView:
    """A job that has ended, as Slurm describes it."""
    return JobView(
        "7",
        JobState.ENDED,
        state,
        reason,
        start_s=START_S,
        end_s=START_S + ran_s,
        time_limit_s=limit_s,
        need=NodeNeed(4, 64 << 30, (GpuNeed(gpus),) if gpus else ()),
        nodes=("n1",),
        exit_code=code,
        signal=signal,
        stdout_path="/h/out/7.log",
        command="/h/train.sh",
        restarts=restarts,
    )


def log(text: str) -> LogView:
    """A log whose end is this."""
    return LogView("/h/out/7.log", text, len(text), START_S + 600)


def verdicts(
    found: JobView | None,
    text: str = "",
    *,
    steps: tuple[StepView, ...] = (),
    box: BoxView | None = None,
    end: EndView | None = None,
) -> tuple[Verdict, ...]:
    """The verdicts on a job with this log."""
    end = end or EndView(steps=steps, logs=(log(text),) if text else ())
    return judge_end(found, end, START_S + 700, box)


def verdict(
    found: JobView | None,
    text: str = "",
    *,
    steps: tuple[StepView, ...] = (),
    box: BoxView | None = None,
    end: EndView | None = None,
) -> Verdict:
    """The first verdict on a job with this log."""
    return verdicts(found, text, steps=steps, box=box, end=end)[0]
