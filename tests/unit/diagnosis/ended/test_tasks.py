"""Of several tasks without labels, the one that failed first is the cause, and none is proven."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY
HEAD = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
"""
KEY = f"{HEAD}KeyError: 'label'\n"
VICTIMS = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms",
    "horovod.common.exceptions.HorovodInternalError: Broken pipe",
    "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out",
)
SOME = "I1125 waiting for task 1\n" * 6


def failed(task: int | str, code: int = 1) -> str:
    """srun's line about it."""
    return f"srun: error: n1: task {task}: Exited with exit code {code}\n"


def step(number: int = 0, tasks: int = 1) -> StepView:
    return StepView(str(number), "python", "FAILED", 1, 0, START_S, START_S + 600, tasks=tasks)


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("steps", [(), (step(tasks=2),)])
@pytest.mark.parametrize("last", ["", failed(0)])
def test_a_task_that_waited_in_vain_is_not_the_cause(
    victim: str, steps: tuple[StepView, ...], last: str
) -> None:
    text = f"{KEY}{failed(1)}{SOME}{HEAD}  File '/lib/x.py', line 1\n{victim}\n{last}"
    found = verdict(job("FAILED", 1), text, steps=steps)
    assert found.sentence.startswith("failed: KeyError: 'label'")
    assert (found.code, found.certainty) == ("exception", LIKELY)


@pytest.mark.parametrize(
    ("text", "steps", "certainty"),
    [
        (KEY, (step(tasks=2),), LIKELY),
        (KEY + failed("1"), (), LIKELY),
        (KEY + failed("[0-1]"), (), LIKELY),
        (failed(0) + KEY, (step(),), LIKELY),
        (KEY + failed(0), (step(),), PROVEN),
        (KEY, (step(), StepView("extern", "extern", "COMPLETED", 0, 0, tasks=4)), PROVEN),
    ],
)
def test_only_one_task_proves_it(
    text: str, steps: tuple[StepView, ...], certainty: Certainty
) -> None:
    found = verdict(job("FAILED", 1), text, steps=steps)
    assert (found.code, found.certainty) == ("exception", certainty)


def test_a_later_step_is_named_though_an_earlier_one_failed() -> None:
    other = f"{HEAD}ValueError: 3\n"
    found = verdict(job("FAILED", 1), f"{KEY}{failed(0)}{other}{failed(0)}")
    assert found.sentence.startswith("failed: ValueError: 3")
    far = verdict(job("FAILED", 1), f"{KEY}{failed(0)}" + "step\n" * 30 + other + failed(1))
    assert far.sentence.startswith("failed: ValueError: 3")
    assert far.certainty is LIKELY
