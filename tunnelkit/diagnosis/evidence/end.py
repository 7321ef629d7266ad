"""The end of a job: its steps, its log, the record of tk's black box."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a job, from the accounting. step: "batch", "extern", "0". max_rss_bytes: as
    sampled, so it may be missing or too small."""

    step: str
    name: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    max_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LogView:
    """The end of a log. text: its last part. size_bytes, written_s: of the whole file."""

    path: str
    text: str
    size_bytes: int = 0
    written_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndView:
    """All that was read about a job's end. missing: what did not answer, and why."""

    steps: tuple[StepView, ...] = ()
    logs: tuple[LogView, ...] = ()
    missing: tuple[str, ...] = ()
