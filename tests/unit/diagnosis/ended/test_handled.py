"""A traceback that was handled, or whose exit code is another's, proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY
HEAD = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
"""
KEY = f"{HEAD}KeyError: 'label'\n"
GPU = f"{HEAD}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\n"
QUOTA = f"{HEAD}OSError: [Errno 122] Disk quota exceeded: '/home/x'\n"
STEPS = "".join(f"step {one}\n" for one in range(60)) + "ERROR: loss is NaN, aborting\n"
END_S = START_S + 600


def two(out: str, err: str, out_s: float | None, err_s: float | None) -> EndView:
    """A job's stdout and stderr, and when each was last written."""
    logs = (LogView("/h/7.out", out, len(out), out_s), LogView("/h/7.err", err, len(err), err_s))
    return EndView(logs=logs)


@pytest.mark.parametrize("text", [KEY, GPU, QUOTA])
@pytest.mark.parametrize(
    ("out", "out_s", "err_s", "after", "certainty"),
    [
        (STEPS, END_S, END_S - 300, "", LIKELY),
        (STEPS, END_S, END_S, "", LIKELY),
        (STEPS, None, None, "", LIKELY),
        # Slurm's line has moved the time of the file.
        (STEPS, END_S - 300, END_S, "srun: error: n1: task 0: Exited with exit code 1\n", LIKELY),
        (STEPS, END_S - 300, END_S, "", PROVEN),
        ("", END_S - 300, END_S, "", PROVEN),
        ("\n", END_S, END_S - 300, "", PROVEN),
    ],
)
def test_of_two_logs_only_the_times_say_which_was_written_last(
    text: str, out: str, out_s: float | None, err_s: float | None, after: str, certainty: Certainty
) -> None:
    found = verdict(job("FAILED", 1), end=two(out, text + after, out_s, err_s))
    assert found.code in ("exception", "gpu-oom", "quota-full")
    assert found.certainty is certainty


@pytest.mark.parametrize(("code", "text"), [
    (127, "/s/slurm_script: line 3: tran: command not found\n"),
    (126, "/s/slurm_script: line 3: ./a: Permission denied\n"),
    (2, "python3: can't open file '/h/tran.py': [Errno 2] No such file or directory\n"),
])  # fmt: skip
@pytest.mark.parametrize(("out", "out_s", "certainty"), [
    (STEPS, END_S, LIKELY), (STEPS, None, LIKELY), (STEPS, END_S - 9, PROVEN), ("", END_S, PROVEN),
])  # fmt: skip
def test_after_a_missing_command_the_script_may_have_written_to_its_other_log(
    code: int, text: str, out: str, out_s: float | None, certainty: Certainty
) -> None:
    found = verdict(job("FAILED", code), end=two(out, text, out_s, END_S))
    assert found.code in ("not-found", "not-executable")
    assert found.certainty is certainty


def test_a_failed_step_that_was_tolerated_proves_no_exception() -> None:
    first = StepView("0", "prepare", "FAILED", 1, 0, START_S, START_S + 10)
    second = StepView("1", "train", "FAILED", 4, 0, START_S + 10, END_S)
    found = verdict(job("FAILED", 4), KEY, steps=(first, second))
    assert found.certainty is not PROVEN
    later = StepView("1", "train", "COMPLETED", 0, 0, START_S + 10, END_S)
    assert verdict(job("FAILED", 1), KEY, steps=(first, later)).certainty is not PROVEN


@pytest.mark.parametrize("code", [1, 4])
def test_the_last_step_to_end_proves_it(code: int) -> None:
    first = StepView("0", "prepare", "COMPLETED", 0, 0, START_S, START_S + 10)
    second = StepView("1", "train", "FAILED", 1, 0, START_S + 10, END_S)
    found = verdict(job("FAILED", code), KEY, steps=(first, second))
    assert (found.code, found.certainty) == ("exception", PROVEN)


@pytest.mark.parametrize(
    ("state", "code", "codes", "certainty"),
    [
        ("COMPLETED", 0, (1,), PROVEN),
        ("COMPLETED", 0, (1, 4), LIKELY),
        ("FAILED", 4, (1,), LIKELY),
        ("FAILED", 4, (1, 4), LIKELY),
        ("FAILED", 1, (1,), PROVEN),
    ],
)
def test_sruns_lines_without_rows_of_steps(
    state: str, code: int, codes: tuple[int, ...], certainty: Certainty
) -> None:
    lines = "".join(f"srun: error: n1: task 0: Exited with exit code {one}\n" for one in codes)
    found = verdict(replace(job(state, code), derived_code=max(codes)), KEY + lines)
    assert (found.code, found.certainty) == ("exception", certainty)


@pytest.mark.parametrize(
    ("before", "words", "code"),
    [
        # "array" has the module's name in it.
        ("No module named 'ray'", "ValueError: could not broadcast input array", "exception"),
        ("No module named 'ray'", "ModuleNotFoundError: No module named 'wandb'", "missing-module"),
        ("No module named 'wandb'", "KeyError: 'wandb'", "exception"),
    ],
)
def test_a_warning_on_a_module_is_no_cause(before: str, words: str, code: str) -> None:
    warning = f"WARNING: tune is off: ModuleNotFoundError: {before}\n"
    found = verdict(job("FAILED", 1), warning + "step\n" * 300 + f"{HEAD}{words}\n")
    assert (found.code, found.certainty) == (code, PROVEN)
    assert words.rpartition(" ")[2].strip("'") in found.sentence


def test_a_module_that_a_rank_lacked_is_named_beside_anothers_copy() -> None:
    lines = f"{HEAD}ModuleNotFoundError: No module named 'wandb'".splitlines()
    text = "".join(f"[rank{rank}]: {line}\n" for rank in (0, 1) for line in lines)
    assert verdict(job("FAILED", 1), text).code == "missing-module"


def test_a_full_gpu_that_was_handled_hides_none_at_the_end() -> None:
    first = GPU.replace("2.00 GiB", "4.00 GiB")
    found = verdict(job("FAILED", 1), first + "step\n" * 300 + GPU)
    assert (found.code, found.certainty) == ("gpu-oom", PROVEN)
    assert verdict(job("FAILED", 1), GPU + "step\n" * 300 + KEY).code == "exception"
