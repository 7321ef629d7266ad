"""A shell in a job proves nothing by its code: a user may have attached it to look around."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict, verdicts
from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY
KEY = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""
TASK = "srun: error: n1: task 0: Exited with exit code 1\n"
SEGV = "srun: error: n1: task 0: Segmentation fault\n"
OOM = "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.1. Some of the step tasks have "


def shell(code: int | None = 1, signal: int = 0, name: str = "bash") -> StepView:
    """A shell's row: it ended before the job."""
    state = "OUT_OF_MEMORY" if signal == 125 else "FAILED"
    return StepView("1", name, state, code, signal, START_S + 5, START_S + 90)


TRAIN = StepView("0", "python", "COMPLETED", 0, 0, START_S, START_S + 600)
FAILED = StepView("0", "python", "FAILED", 1, 0, START_S, START_S + 600)


@pytest.mark.parametrize("name", ["bash", "zsh", "tcsh", "interactive"])
@pytest.mark.parametrize("code", [1, 127, 130])
@pytest.mark.parametrize("text", ["done\n", KEY, KEY + "step\n" * 40])
@pytest.mark.parametrize("steps", [(), (TRAIN,)])
def test_it_makes_no_healthy_job_fail(
    name: str, code: int, text: str, steps: tuple[StepView, ...]
) -> None:
    found = verdicts(job("COMPLETED"), text, steps=(*steps, shell(code, name=name)))
    assert [(one.code, one.certainty) for one in found] == [("ok", LIKELY)]


@pytest.mark.parametrize(
    ("found", "text", "steps", "code", "certainty"),
    [
        # The shell's 1 is not the program's.
        (job("FAILED", 5), KEY, (shell(),), "exception", LIKELY),
        (job("FAILED", 1), KEY, (shell(),), "exception", PROVEN),
        (job("FAILED", 1), KEY, (shell(0),), "exception", PROVEN),
        (job("FAILED", 1), KEY, (shell(), TRAIN), "exception", LIKELY),
        (job("FAILED", 1), KEY, (shell(0), FAILED), "exception", PROVEN),
        # `srun bash train.sh` has that name, too, and srun tells in the log how it ended.
        (job("FAILED", 5), KEY + TASK, (shell(),), "exception", LIKELY),
        (job("FAILED", 1), KEY + TASK, (shell(),), "exception", PROVEN),
        (job("COMPLETED"), KEY + TASK, (shell(),), "exception", LIKELY),
        (job("COMPLETED"), TASK, (shell(), TRAIN), "step-failed", LIKELY),
        # Without a log there is no word of srun's.
        (job("COMPLETED"), "", (shell(), TRAIN), "step-failed", LIKELY),
        (replace(job("FAILED", 11), code_by_sacct=True), SEGV,
         (replace(shell(0, 11), end_s=START_S + 600),), "segfault", PROVEN),
        (job("COMPLETED"), "done\n", (shell(0, 15),), "ok", PROVEN),
        (job("FAILED", 1), "done\n", (shell(0, 11),), "exit-unknown", Certainty.UNKNOWN),
        # Its memory.
        (job("COMPLETED"), "done\n", (TRAIN, shell(0, 125)), "ok", LIKELY),
        (job("COMPLETED"), OOM, (shell(0, 125),), "oom-limit", LIKELY),
        (job("FAILED", 5), "done\n", (shell(0, 125),), "oom-limit", LIKELY),
    ],
)  # fmt: skip
def test_what_its_row_tells(
    found: JobView, text: str, steps: tuple[StepView, ...], code: str, certainty: Certainty
) -> None:
    first = verdict(found, text, steps=steps)
    assert (first.code, first.certainty) == (code, certainty), first
