"""Tracebacks beside the one that ended the program: they end a thread, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.diagnosis.ended_cases import job, verdict
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY
#: Real ones: `record` in it says how they were made.
DATA = Path(__file__).parents[3] / "support/data/tracebacks"


@pytest.mark.parametrize(
    ("name", "certainty"),
    [
        ("at_exit-3.9", PROVEN),
        ("at_exit-3.12", PROVEN),
        ("log_args-3.9", PROVEN),
        ("log_args-3.13", PROVEN),
        ("tracker-3.9", PROVEN),
        ("tracker-3.13", PROVEN),
        # A thread's end may be why.
        ("thread_late-3.9", LIKELY),
        ("thread_late-3.13", LIKELY),
    ],
)
def test_the_programs_own_exception_is_named(name: str, certainty: Certainty) -> None:
    found = verdict(job("FAILED", 1), (DATA / f"{name}.log").read_text())
    assert found.sentence.startswith("failed: KeyError: 'label' at "), found
    assert (found.code, found.certainty) == ("exception", certainty)


@pytest.mark.parametrize("name", ["at_exit-3.9", "at_exit-3.12"])
def test_what_a_program_met_when_it_had_ended_is_no_cause(name: str) -> None:
    text = (DATA / f"{name}.log").read_text()
    alone = text.partition("KeyError: 'label'\n")[2]
    assert "No space left" in alone
    found = verdict(job("FAILED", 3), "epoch 1\n" + alone)
    assert found.code == "exit-unknown"
    assert any("No space left" in one.text for one in found.because)
    # Before its end the disk was full, too.
    found = verdict(job("FAILED", 3), "cp: error writing '/x': No space left on device\n" + alone)
    assert found.code == "disk-full"


def test_a_record_that_can_t_be_logged_ends_no_program() -> None:
    text = (DATA / "log_args-3.13.log").read_text()
    text = text[: text.rindex("Traceback")]
    assert verdict(job("FAILED", 1), text).code == "exit-unknown"


def test_a_threads_exception_long_after_a_handled_one_counts() -> None:
    main, thread, rest = (DATA / "thread_late-3.13.log").read_text().partition("Exception in ")
    for number, name in ((3, "KeyError"), (30, "EOFError")):
        found = verdict(job("FAILED", 1), main + "step\n" * number + thread + rest)
        assert found.sentence.startswith(f"failed: {name}")
        assert found.certainty is LIKELY
