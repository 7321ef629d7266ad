"""The memory that a job used which ended well, and less that it could ask for."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tunnelkit.diagnosis.evidence.end import StepView


def test_peaks_and_what_could_be_asked_for_less() -> None:
    steps = (_step("0", 4),)
    found = verdict(job("COMPLETED", ran_s=300), steps=steps)
    assert found.next_steps[0].command == "tk up --mem 6G"
    assert found.because[1].text == "memory: 4 GB of 64 GB at its highest sample"
    short = verdict(job("COMPLETED", ran_s=59), steps=steps)
    assert not short.next_steps


def _step(step: str, gb: int, tasks: int | None = 1, begin: float = 0, end: float = 9) -> StepView:
    return StepView(
        step, "python", "COMPLETED", 0, 0, START_S + begin, START_S + end, gb << 30, tasks=tasks
    )


@pytest.mark.parametrize(
    "steps",
    [
        (_step("0", 2, tasks=32),),
        (_step("0", 2, tasks=None),),
        (_step("0", 2), _step("1", 1, begin=8, end=20)),
        (_step("0", 2), StepView("1", "x", "COMPLETED", 0, 0, tasks=1)),
    ],
)
def test_the_largest_task_is_not_what_a_node_used(steps: tuple[StepView, ...]) -> None:
    """MaxRSS is one task's, and steps may run at the same time."""
    found = verdict(job("COMPLETED", ran_s=300), steps=steps)
    assert found.because[1].text == "memory: 2 GB, its largest task at its highest sample"
    assert not any("--mem" in one.command for one in found.next_steps)


def test_steps_one_after_another_beside_the_script() -> None:
    steps = (_step("batch", 1, end=20), _step("0", 2), _step("1", 3, begin=9, end=20))
    found = verdict(job("COMPLETED", ran_s=300), steps=(*steps, _step("extern", 1, tasks=2)))
    assert found.because[1].text == "memory: 4 GB of 64 GB at its highest sample"
