"""A log that several jobs write: only a job's own part is its verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.ended_cases import START_S, job, verdict, verdicts
from tunnelkit.diagnosis.ended.log.own_part import own_part
from tunnelkit.diagnosis.evidence.end import EndView, LogView, StepView
from tunnelkit.diagnosis.verdict import Certainty, Verdict

PROVEN, LIKELY = Certainty.PROVEN, Certainty.LIKELY
TRACEBACK = """\
Traceback (most recent call last):
  File "/h/train.py", line 88, in collate
    y = row["label"]
KeyError: 'label'
"""
BEFORE = TRACEBACK.replace("KeyError: 'label'", "ValueError: of the job before")
SAID = "srun: error: n1: task 0: Exited with exit code 1\n"
FOUND = replace(job("FAILED", 1), job_id="101", raw_id="101")


def ended(number: int, why: str = "DUE TO TIME LIMIT") -> str:
    """The step daemon's line on the end of a job."""
    at = "CANCELLED AT 2026-11-25T19:02:56"
    return f"slurmstepd-n1: error: *** JOB {number} ON n1 {at} {why} ***\n"


def killed(number: str) -> str:
    """The step daemon's line on a kill for memory."""
    return f"slurmstepd-n1: error: Detected 1 oom_kill event in StepId={number}. Some were.\n"


@pytest.mark.parametrize("before", [ended(100), ended(100, ""), killed("100.batch"), killed("9.0")])
def test_lines_about_the_job_before_are_no_reason(before: str) -> None:
    found = verdict(FOUND, "step 1\n" + before + "step 2\n" + TRACEBACK)
    # A third job may have written after the one that has a line.
    assert (found.code, found.certainty) == ("exception", LIKELY)


def test_what_another_job_wrote_before_its_end_is_not_read() -> None:
    found = verdict(FOUND, BEFORE + ended(100) + "step 2\n")
    assert found.code == "exit-unknown"
    assert not any("ValueError" in one.text for one in found.because)
    # Nothing is left of it; that is no empty log.
    found = verdict(FOUND, BEFORE + ended(100))
    assert [one.text for one in found.because] == ["FAILED, exit code 1:0, after 0:10:00"]


def test_the_job_s_own_lines_count() -> None:
    late = replace(FOUND, exit_code=0, signal=9, end_s=START_S + 3600)
    assert verdict(late, ended(101)).code == "timeout"
    assert verdict(FOUND, killed("101.batch")).code == "oom-limit"
    text = BEFORE + ended(100) + "own\n" + ended(101) + "ends\n" + "of 102\n" + ended(102) + "x"
    assert own_part(text, FOUND) == "own\n" + ended(101) + "ends\nof 102"


def test_an_array_s_element_is_named_by_its_own_number() -> None:
    element = replace(FOUND, job_id="90_3", raw_id="101")
    assert verdict(element, killed("101.batch")).code == "oom-limit"
    assert own_part("a\n" + ended(93) + "b", element) == "b"
    # As the accounting has it, its own number is not known.
    component = replace(element, job_id="90", raw_id="90", component=True)
    unknown = (replace(element, raw_id=""), replace(element, job_id="90+1"), component, None)
    for found in unknown:
        assert own_part("a\n" + ended(93) + "b", found) == "a\n" + ended(93) + "b"


def test_lines_alone_make_no_failure_of_a_job_that_ended_well() -> None:
    well = replace(FOUND, native_state="COMPLETED", exit_code=0)
    text = TRACEBACK + SAID + "of 101\n"
    assert [one.code for one in verdicts(well, text)] == ["step-failed"]
    assert verdict(well, text).certainty is LIKELY
    assert verdict(well, "srun: error: n1: task 0: Out Of Memory\n").code == "step-failed"
    # Slurm's record says that no step failed.
    assert verdict(replace(well, derived_code=0), text).code == "ok"
    rows = tuple(StepView(step, step, "COMPLETED", 0, 0) for step in ("batch", "0"))
    for steps in (rows[:1], rows):
        assert verdict(well, text, steps=steps).code == "ok"
    # It says that one failed, so the lines may be this job's.
    for some in (replace(well, derived_code=1), replace(well, derived_code=None)):
        steps = () if some.derived_code else (*rows, StepView("1", "x", "FAILED", 1, 0))
        codes = [one.code for one in verdicts(some, TRACEBACK + SAID, steps=steps)]
        assert codes == ["exception", "step-failed"]


@pytest.mark.parametrize(("written_s", "certainty"), [
    (START_S + 620, PROVEN), (START_S + 600 + 7200, LIKELY), (START_S - 7200, LIKELY),
])  # fmt: skip
def test_a_log_that_was_not_written_by_the_job_proves_nothing(
    written_s: float, certainty: Certainty
) -> None:
    end = EndView(logs=(LogView("/h/101.log", TRACEBACK, len(TRACEBACK), written_s),))
    found = verdict(FOUND, end=end)
    assert (found.code, found.certainty) == ("exception", certainty)
    doubts = [one.text for one in found.because if "another job's" in one.text]
    assert bool(doubts) is (certainty is LIKELY)
    # Its record proves the same without the log.
    found = verdict(replace(FOUND, native_state="OUT_OF_MEMORY", signal=125), end=end)
    assert (found.code, found.certainty) == ("oom-limit", PROVEN)


def shared(path: str, born_s: float | None, job_id: str = "101", raw_id: str = "101") -> Verdict:
    """The verdict by a log of this name that was made at this time."""
    log = LogView(path, TRACEBACK, len(TRACEBACK), START_S + 600, born_s=born_s)
    return verdict(replace(FOUND, job_id=job_id, raw_id=raw_id), end=EndView(logs=(log,)))


@pytest.mark.parametrize(("born_s", "words"), [
    (None, "it is not known when the file was made"),
    (START_S - 7200, "the file was made 2 h 0 min before the job began"),
])  # fmt: skip
def test_last_words_may_be_those_of_a_job_before(born_s: float | None, words: str) -> None:
    found = shared("/h/run.log", born_s)
    assert (found.code, found.certainty) == ("exception", LIKELY)
    assert words in found.because[-1].text


@pytest.mark.parametrize(("path", "born_s", "job_id", "raw_id"), [
    ("/h/run.log", START_S, "101", "101"), ("/h/slurm-101.out", None, "101", "101"),
    ("/h/101/run.log", None, "101", "101"), ("/h/00000101.log", None, "101", "101"),
    ("/h/90_3.out", None, "90_3", ""), ("/h/%A/101.out", None, "90_3", "101"),
    ("/h/90/3.out", None, "90_3", ""), ("/h/90_3.out", None, "90_3", "90"),
    ("/h/x.o101", None, "101.login", ""), ("/h/x.o101.3", None, "101[3].login", ""),
])  # fmt: skip
def test_a_log_of_this_job_alone_proves_it(
    path: str, born_s: float | None, job_id: str, raw_id: str
) -> None:
    found = shared(path, born_s, job_id, raw_id)
    assert (found.code, found.certainty) == ("exception", PROVEN)
    assert not any("an earlier job's" in one.text for one in found.because)


@pytest.mark.parametrize(("path", "job_id"), [
    ("/h/90.out", "90_3"), ("/h/3/90.out", "90_3"), ("/h/1010.out", "101"), ("/h/run.log", "101"),
    ("/h/run0.log", "101"), ("/home/user101/run.log", "101"), ("/h/v101.2/run.log", "101"),
    ("/h/x.o101", "101[3].login"),
])  # fmt: skip
def test_another_number_is_not_the_job_s(path: str, job_id: str) -> None:
    assert shared(path, None, job_id, "").certainty is LIKELY


@pytest.mark.parametrize(("path", "born_s", "job_id", "raw_id"), [
    ("/h/run.log", START_S + 1, "90_3", "101"), ("/h/run-90.log", START_S + 1, "90_3", "101"),
    ("/h/run.log", START_S + 1, "101[3].login", ""),
    ("/h/run-90.log", None, "90_3", "90"), ("/h/run-90.log", START_S, "90_3", "90"),
])  # fmt: skip
def test_a_log_of_all_elements_proves_nothing_of_one(
    path: str, born_s: float | None, job_id: str, raw_id: str
) -> None:
    assert shared(path, born_s, job_id, raw_id).certainty is LIKELY


def test_a_record_proves_the_same_beside_a_shared_log() -> None:
    log = LogView("/h/run.log", TRACEBACK, len(TRACEBACK), START_S + 600)
    oom = replace(FOUND, native_state="OUT_OF_MEMORY", signal=125)
    found = verdict(oom, end=EndView(logs=(log,)))
    assert (found.code, found.certainty) == ("oom-limit", PROVEN)
    assert not any("an earlier job's" in one.text for one in found.because)
