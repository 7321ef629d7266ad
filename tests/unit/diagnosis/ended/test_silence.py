"""A job at its time limit without samples: CPU time and the log say whether it stood still."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tunnelkit.diagnosis.evidence.box import BoxSample, BoxView
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY
RAN_S = 36_000.0
FOUND = job("TIMEOUT", 0, 15, ran_s=RAN_S, limit_s=36_000)
STEPD = (
    "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T19:02:56 DUE TO TIME LIMIT ***"
)


def ended(silent_s: float, cpu_s: float, text: str = "step 990/1000\n") -> EndView:
    """The end of a job whose stdout was silent for so long, with CPU time in the accounting."""
    end_s = START_S + RAN_S
    return EndView(
        steps=(StepView("batch", "batch", "CANCELLED", 0, 15, cpu_s=cpu_s),),
        logs=(
            LogView("/h/7.out", text, len(text), end_s - silent_s),
            LogView("/h/7.err", STEPD, len(STEPD), end_s),
        ),
    )


@pytest.mark.parametrize(("silent_s", "cpu_s", "code", "certainty"), [
    (3.0, 0.56, "timeout-working", LIKELY),
    (3.0, 9000.0, "timeout-working", LIKELY),
    (3000.0, 9000.0, "timeout-working", LIKELY),
    # Between the two nobody knows.
    (3000.0, 0.56, "timeout", PROVEN),
    (20_000.0, 0.56, "timeout-hang", LIKELY),
    (20_000.0, 9000.0, "timeout", PROVEN),
    (20_000.0, 0.0, "timeout", PROVEN),
])  # fmt: skip
def test_a_log_written_up_to_the_end_is_no_hang(
    silent_s: float, cpu_s: float, code: str, certainty: Certainty
) -> None:
    found = verdict(FOUND, end=ended(silent_s, cpu_s))
    assert (found.code, found.certainty) == (code, certainty)


def test_a_log_for_both_streams_has_no_time_but_may_show_progress() -> None:
    both = replace(ended(3.0, 0.56), logs=(LogView("/h/7.out", f"step 990/1000\n{STEPD}\n"),))
    found = verdict(FOUND, end=both)
    assert (found.code, found.certainty) == ("timeout", PROVEN)
    assert any("0.6 s of CPU" in one.text for one in found.because)
    still = replace(both, logs=(LogView("/h/7.out", f"loading\n{STEPD}\n"),))
    assert verdict(FOUND, end=still).code == "timeout-hang"


def test_samples_that_counted_no_log_do_not_outweigh_it() -> None:
    samples = tuple(BoxSample(START_S + 60 * at, 0.5) for at in range(600))
    box = BoxView(samples=samples)
    assert verdict(FOUND, end=ended(3.0, 9000.0), box=box).code == "timeout-working"
    found = verdict(FOUND, end=ended(20_000.0, 9000.0), box=box)
    assert (found.code, found.certainty) == ("timeout-hang", LIKELY)


def idle(*, log_bytes: int | None = 0, holds_agent: bool = False) -> BoxView:
    """A box that saw no CPU used, and its log (stderr) not grow."""
    samples = tuple(BoxSample(START_S + 60 * at, 0.5, log_bytes=log_bytes) for at in range(600))
    return BoxView(samples=samples, holds_agent=holds_agent)


@pytest.mark.parametrize(("silent_s", "code", "certainty"), [
    (5.0, "timeout-working", LIKELY), (6000.0, "timeout", PROVEN),
    (20_000.0, "timeout-hang", PROVEN),
])  # fmt: skip
def test_a_head_job_that_waits_for_others_writes_to_stdout(
    silent_s: float, code: str, certainty: Certainty
) -> None:
    """Snakemake or Nextflow: next to no CPU, and stdout is another file than the box's log."""
    found = verdict(FOUND, end=ended(silent_s, 20.0, "[13/40] done\n"), box=idle())
    assert (found.code, found.certainty) == (code, certainty)


def test_a_stdout_whose_time_is_not_known_leaves_a_hang_likely() -> None:
    end = ended(5.0, 20.0, "[13/40] done\n")
    unknown = replace(end, logs=(replace(end.logs[0], written_s=None), end.logs[1]))
    found = verdict(FOUND, end=unknown, box=idle())
    assert (found.code, found.certainty) == ("timeout-hang", LIKELY)
    empty = replace(end, logs=(LogView("/h/7.out", ""), end.logs[1]))
    for one in (empty, replace(end, logs=())):
        found = verdict(FOUND, end=one, box=idle())
        assert (found.code, found.certainty) == ("timeout-hang", PROVEN)


@pytest.mark.parametrize("log_bytes", [0, None])
def test_a_job_that_holds_tk_s_agent_does_not_hang(log_bytes: int | None) -> None:
    """Its user may have stood at a breakpoint."""
    box = idle(log_bytes=log_bytes, holds_agent=True)
    for end in (replace(ended(5.0, 20.0), logs=()), ended(20_000.0, 20.0)):
        found = verdict(FOUND, end=end, box=box)
        assert (found.code, found.certainty) == ("timeout", PROVEN)
        assert "more time would not help" not in found.sentence
