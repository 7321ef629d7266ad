"""The end of an earlier run, or of a step that was tried again, is not the job's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.verdict import Certainty

PROVEN, LIKELY, UNKNOWN = Certainty.PROVEN, Certainty.LIKELY, Certainty.UNKNOWN
TRACEBACK = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""


def slurm_end(why: str) -> str:
    """Slurm's line on the end of a run of the job."""
    at = "CANCELLED AT 2026-11-25T19:02:56"
    return f"slurmstepd-n1: error: *** JOB 7 ON n1 {at} DUE TO {why} ***\n"


def two_logs(out: str, err: str) -> EndView:
    """A job with stdout and stderr in two files."""
    return EndView(
        logs=tuple(LogView(f"/h/7.{at}", text, len(text), START_S + 600)
                   for at, text in (("out", out), ("err", err)))
    )  # fmt: skip


def test_slurm_ended_it_before_its_time_limit() -> None:
    silent = job("TIMEOUT", 0, 15, ran_s=2400, limit_s=28_800, reason="InactiveLimit")
    found = verdict(silent)
    assert (found.code, found.certainty) == ("exit-unknown", PROVEN)
    assert "0:40:00 of 8:00:00: its srun or salloc was silent" in found.sentence
    for reason in ("TimeLimit", None):
        found = verdict(replace(silent, reason=reason), "step 1/2\n")
        assert (found.code, found.certainty) == ("exit-unknown", LIKELY)
        assert "0:40:00 of 8:00:00, before its own time limit" in found.sentence
    # Not on record; or it had none.
    found = verdict(replace(silent, time_limit_s=None))
    assert (found.code, found.certainty) == ("timeout", LIKELY)
    found = verdict(replace(silent, time_limit_s=None, unlimited=True, reason="TimeLimit"))
    assert (found.code, found.certainty) == ("exit-unknown", LIKELY)
    assert "after 0:40:00, and has no time limit of its own: its reservation" in found.sentence


@pytest.mark.parametrize("why", ["TIME LIMIT", "PREEMPTION", "NODE FAILURE"])
def test_the_end_of_an_earlier_run(why: str) -> None:
    again = job("FAILED", 1, restarts=1)
    line = slurm_end(why)
    found = verdict(again, f"step 1\n{line}step 1\n{TRACEBACK}")
    assert (found.code, found.certainty) == ("exception", PROVEN)
    # The last run wrote nothing, or only to stdout.
    assert verdict(again, TRACEBACK + line).code == "exit-unknown"
    assert verdict(again, end=two_logs("step 1\nstep 2\n", TRACEBACK + line)).code == "exit-unknown"
    found = verdict(again, end=two_logs(f"step 1\n{TRACEBACK}", line))
    assert found.code == "exception"


def test_a_line_of_slurm_against_its_record() -> None:
    found = verdict(job("FAILED", 1), slurm_end("TIME LIMIT") + TRACEBACK)
    assert found.code == "exception"
    found = verdict(job("FAILED", 1), slurm_end("PREEMPTION"))
    assert (found.code, found.certainty) == ("preempted", LIKELY)
    found = verdict(job("FAILED", 0, 15), slurm_end("PREEMPTION"))
    assert (found.code, found.certainty) == ("preempted", PROVEN)


def test_slurm_dropped_it_as_its_dependency_failed() -> None:
    found = verdict(job("CANCELLED", reason="DependencyNeverSatisfied", ran_s=0))
    assert (found.code, found.certainty) == ("cancelled", PROVEN)
    assert "its dependency failed" in found.sentence
    # Somebody was quicker than Slurm.
    found = verdict(job("CANCELLED by 1000", reason="DependencyNeverSatisfied", ran_s=0))
    assert found.sentence == "was cancelled by uid 1000"


OOM_0 = StepView("0", "x", "OUT_OF_MEMORY", 0, 125, START_S, START_S + 60)
ON_1 = StepView("1", "x", "CANCELLED", 0, 15, START_S + 70, START_S + 3060)
OOM_LINE = "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.0. Some were killed.\n"


@pytest.mark.parametrize(
    ("state", "exit_code", "signal", "code"),
    [
        ("TIMEOUT", 0, 15, "timeout"), ("CANCELLED by 1000", 0, 15, "cancelled"),
        ("NODE_FAIL", 0, 0, "node-failed"), ("PREEMPTED", 0, 15, "preempted"),
        ("TIMEOUT", 0, 125, "timeout"),
    ],
)  # fmt: skip
def test_a_kill_for_memory_that_the_job_outlived(
    state: str, exit_code: int, signal: int, code: str
) -> None:
    found = job(state, exit_code, signal, ran_s=3600)
    for steps in ((OOM_0, ON_1), (OOM_0,), (replace(OOM_0, step="batch"), ON_1)):
        assert verdict(found, OOM_LINE + "step\n", steps=steps).code == code


def test_a_step_out_of_memory_that_was_tried_again() -> None:
    said = "srun: error: n1: task 0: Out Of Memory\n"
    again = (OOM_0, replace(ON_1, state="FAILED", exit_code=1, signal=0))
    failed = job("FAILED", 1, ran_s=3070)
    for rows in (again, tuple(replace(one, start_s=None, end_s=None) for one in again)):
        found = verdict(failed, OOM_LINE + said + TRACEBACK, steps=rows)
        assert found.code == "exception"  # at most likely, where times show another step after it
        assert verdict(failed, said + "input missing\n", steps=rows).code == "exit-unknown"
    # Two at a time, and the last one: that may be why.
    side = replace(again[1], start_s=START_S)
    found = verdict(replace(failed, end_s=START_S + 61), steps=(OOM_0, side))
    assert (found.code, found.certainty) == ("oom-limit", PROVEN)
    # The script went on without a step.
    found = verdict(failed, "copied\n", steps=(OOM_0,))
    assert (found.code, found.certainty) == ("oom-limit", LIKELY)
    assert verdict(failed, TRACEBACK, steps=(OOM_0,)).code == "exception"
    assert verdict(failed, said + "step\n" * 50 + TRACEBACK).code == "exception"
    well = (OOM_0, replace(ON_1, state="COMPLETED", signal=0))
    assert verdict(job("COMPLETED"), steps=well).code == "step-failed"


@pytest.mark.parametrize(
    ("step", "name"), [("extern", "extern"), ("0", "tk-step"), ("1", "tk-agent")]
)
def test_a_kill_for_memory_of_what_is_not_the_program(step: str, name: str) -> None:
    """A shell by ssh (extern), which ends with the job, or tk's own step."""
    beside = StepView(step, name, "OUT_OF_MEMORY", 0, 125, START_S, START_S + 590)
    batch = StepView("batch", "batch", "FAILED", 1, 0, START_S, START_S + 600)
    line = f"slurmstepd-n1: error: Detected 1 oom_kill event in StepId=7.{step}. Some.\n"
    for text in (TRACEBACK, line + TRACEBACK):
        found = verdict(job("FAILED", 1), text, steps=(batch, beside))
        assert (found.code, found.certainty) == ("exception", PROVEN)
    well = replace(batch, state="COMPLETED", exit_code=0)
    for end_s in (START_S + 100, START_S + 590):
        steps = (well, replace(beside, end_s=end_s))
        found = verdict(job("COMPLETED"), "done\n", steps=steps)
        assert (found.code, found.certainty) == ("ok", PROVEN)
    # Slurm says so of the whole job.
    over = job("OUT_OF_MEMORY", 0, 125)
    found = verdict(over, "step\n", steps=(batch, beside))
    assert (found.code, found.certainty) == ("oom-limit", LIKELY)
    found = verdict(job("OUT_OF_MEMORY", 1), TRACEBACK, steps=(batch, beside))
    assert (found.code, found.certainty) == ("exception", PROVEN)
    own = replace(batch, state="OUT_OF_MEMORY", exit_code=0, signal=125)
    found = verdict(over, "step\n", steps=(own, beside))
    assert (found.code, found.certainty) == ("oom-limit", PROVEN)


def ended_by(signal: int) -> StepView:
    """Step 0, by this signal."""
    return StepView("0", "x", "FAILED", 0, signal, START_S, START_S + 60)


def test_a_step_that_crashed_and_was_tried_again() -> None:
    failed = StepView("1", "x", "FAILED", 3, 0, START_S + 70, START_S + 600)
    well = replace(failed, state="COMPLETED", exit_code=0)
    for first, second, code in ((11, failed, 3), (6, well, 5), (11, well, 1)):
        for one in (first, 0):
            steps = (ended_by(first), second)
            if not one:
                steps = (replace(steps[0], end_s=None), replace(second, start_s=None))
            found = verdict(job("FAILED", code), "ERROR: no convergence\n", steps=steps)
            assert (found.code, found.certainty) == ("exit-unknown", UNKNOWN)
    # The second try crashed, too.
    crashed = replace(failed, exit_code=0, signal=11)
    found = verdict(job("FAILED", 1), steps=(ended_by(11), crashed))
    assert (found.code, found.certainty) == ("segfault", PROVEN)


@pytest.mark.parametrize(("code", "ran_s", "certainty"), [
    (1, 600, PROVEN), (139, 600, PROVEN), (5, 600, LIKELY), (1, 3600, LIKELY),
])  # fmt: skip
def test_the_last_step_crashed(code: int, ran_s: float, certainty: Certainty) -> None:
    text = "srun: error: n1: task 0: Segmentation fault\n"
    step = replace(ended_by(11), end_s=START_S + 590)
    found = verdict(job("FAILED", code, ran_s=ran_s), text, steps=(step,))
    assert (found.code, found.certainty) == ("segfault", certainty)


def test_a_helper_crashed_far_above_the_end() -> None:
    text = "/s/slurm_script: line 2: 99 Segmentation fault      (core dumped) x\n"
    assert verdict(job("FAILED", 2), text + "step\n" * 100).code == "exit-unknown"
    assert verdict(job("FAILED", 2), text + "step\n" * 5).code == "segfault"
    for code, signal in ((139, 0), (11, 0), (0, 11)):
        assert verdict(job("FAILED", code, signal), text + "step\n" * 100).code == "segfault"


BAD_STEP = "slurmstepd-n1: error: execve(): bad interpreter(/no/python): No such file or directory"
BAD_NOTIFY = "/s/slurm_script: ./notify.py: /usr/bin/python2: bad interpreter: No such file\n"


def test_a_job_that_ran_for_hours_before_a_bad_interpreter() -> None:
    said = "srun: error: n1: task 0: Exited with exit code 2\n"
    row = StepView("1", "post.py", "FAILED", 2, 0, START_S + 500, START_S + 600)
    for text, steps in (
        ("epoch\n" * 100 + BAD_STEP, ()), (BAD_STEP, (row,)), (f"{BAD_STEP}\n{said}", ()),
    ):  # fmt: skip
        found = verdict(job("FAILED", 2), text, steps=steps)
        assert (found.code, found.certainty) == ("launch-interpreter", LIKELY)
        assert found.sentence == (
            "failed: /no/python, the interpreter of a script that it ran, is not on the node"
        )
    batch = replace(row, step="batch", name="batch")
    found = verdict(job("FAILED", 2), BAD_STEP, steps=(batch,))
    assert (found.code, found.certainty) == ("launch-interpreter", PROVEN)
    assert found.sentence == "never ran: its interpreter /no/python is not on the node"


def test_a_bad_interpreter_far_above_the_end() -> None:
    made = "make: *** [Makefile:3: all] Error 1\n"
    found = verdict(job("FAILED", 2), BAD_NOTIFY + "step\n" * 500 + made)
    assert found.code == "exit-unknown"
    found = verdict(job("FAILED", 2), BAD_NOTIFY + "step\n" * 5)
    assert (found.code, found.certainty) == ("launch-interpreter", LIKELY)
    # The code is that of such a command.
    assert verdict(job("FAILED", 126), BAD_NOTIFY + "x\n" * 9).code == "launch-interpreter"
