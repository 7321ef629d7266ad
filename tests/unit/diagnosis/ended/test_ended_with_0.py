"""A job that ended with 0 has not ended well where its log shows that a part of it failed."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty

KEY = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""
FULL = f"{KEY}\n".replace("KeyError: 'label'", "OSError: [Errno 28] No space left on device: '/x'")
JOBS = (job("COMPLETED"), job("F", 0, None))


@pytest.mark.parametrize("found", JOBS)
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (KEY, "KeyError: 'label' at train.py:88"),
        (KEY + "done\n" * 5, "KeyError: 'label' at train.py:88"),
        ("/s/slurm_script: line 9:  4711 Killed                  python train.py\ndone\n",
         "line 9:  4711 Killed"),
        ("/s/slurm_script: line 9:  4711 Segmentation fault      (core dumped) ./a\ndone\n",
         "Segmentation fault"),
        ("/s/slurm_script: line 3: gmx: command not found\n" + "done\n" * 30, "gmx: command not"),
        ("done\nslurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.batch. Some of the "
         "step tasks have been OOM Killed.\n", "Detected 1 oom_kill event"),
        ("cp: error writing 'x.pt': No space left on device\n" + "done\n" * 30, "No space left"),
        (FULL, "No space left"),
    ],
)  # fmt: skip
def test_its_log_shows_a_failure(found: JobView, text: str, shown: str) -> None:
    first = verdict(found, text)
    assert first.predicate.startswith("ended with 0, but its log shows")
    assert shown in first.sentence
    assert first.certainty is Certainty.LIKELY
    assert any(shown in one.text for one in first.because)


def test_a_helper_that_the_script_ended_has_not_failed() -> None:
    """slurmstepd's own line, that the step was cancelled, does not always come."""
    text = (
        "srun: forcing job termination\n"
        "srun: Job step aborted: Waiting up to 12 seconds for job step to finish.\n"
        "srun: error: node1: task 0: Killed\n"
    )
    assert verdict(job("COMPLETED"), text).code == "ok"
    _, first = text.split("\n", 1)
    assert verdict(job("COMPLETED"), first).code == "step-failed"


@pytest.mark.parametrize("found", JOBS)
@pytest.mark.parametrize(
    "text",
    [
        KEY + "step\n" * 6,
        FULL + "step\n" * 30,
        "/s/slurm_script: line 9:  4711 Terminated              ./monitor\n",
        "killed 0 processes\nSegmentation fault counters: 0\n",
    ],
)
def test_its_log_shows_none(found: JobView, text: str) -> None:
    first = verdict(found, text)
    assert (first.code, first.sentence) == ("ok", "ended well")
    assert first.certainty is Certainty.PROVEN


def test_that_it_failed_is_not_certain_if_its_script_ended_well() -> None:
    """Nor is it of a log alone, of which no record is left."""
    step = StepView(step="0", name="python", state="FAILED", exit_code=1, signal=0)
    shared = LogView("/h/run.log", KEY, len(KEY), START_S + 600)
    end = EndView(steps=(step,), logs=(shared,))
    for found in (verdict(job("COMPLETED"), end=end), verdict(None, KEY)):
        assert (found.code, found.certainty) == ("exception", Certainty.LIKELY)
        assert found.fact == "" and found.predicate.startswith("most likely failed: KeyError")
    assert verdict(job("FAILED", 1), end=end).predicate.startswith("failed, most likely: KeyError")
