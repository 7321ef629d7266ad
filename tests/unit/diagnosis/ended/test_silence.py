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
