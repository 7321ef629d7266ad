"""The records of an ended job: rows as a real slurmdbd 22.05 gave them, logs, file systems; and
text of any kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.diagnosis.ended.case import make_case
from tunnelkit.diagnosis.evidence.box import BoxView
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.model import Completed, JobState
from tunnelkit.scheduler.sections import Section
from tunnelkit.scheduler.slurm.inspect.accounting import (
    FIELDS,
    SEPARATOR,
    cpu_seconds,
    last_run,
    rows_of,
)
from tunnelkit.scheduler.slurm.inspect.ended import LOG_BYTES, accounted_job, end_view
from tunnelkit.scheduler.slurm.inspect.inspector import SlurmInspector
from tunnelkit.session.why.diagnose import judge

#: Recorded from `sacct -D -P` with slurmdbd 22.05.8: see data/README.md.
_DATA: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "data/sacct-22.05.json").read_text()
)


def _with_tasks(line: str) -> str:
    """A row with the field that was not asked for when they were recorded."""
    fields = line.split(SEPARATOR)
    is_step = "." in fields[0]
    return SEPARATOR.join([*fields[:8], "1" if is_step else "", *fields[8:]])


RECORDED = {
    name: "\n".join(_with_tasks(line) if line else line for line in rows.split("\n"))
    for name, rows in _DATA.items()
}
DISABLED = Section("Slurm accounting storage is disabled", 1)


def _answer(sections: dict[str, tuple[str, int]], mark: str = "tk-1") -> Completed:
    sections = {"now": ("1795635000", 0), **sections}
    text = "".join(
        f"\n{mark} {name}\n{body}\n{mark}-code {code}\n" for name, (body, code) in sections.items()
    )
    return Completed(0, text.encode(), b"")


def _diagnosed(name: str) -> list[tuple[str, str]]:
    """The verdicts when only the accounting still knows the job."""
    job_id = RECORDED[name].split(SEPARATOR)[0]
    done = _answer({
        "job": ("slurm_load_jobs error: Invalid job id specified", 1),
        "steps": (RECORDED[name], 0),
        "users": ("own 0 root\nuid 0 root", 0),
    })  # fmt: skip
    found = SlurmInspector().parse(done, job_id, "tk-1")
    assert found.job is not None and found.job.state is JobState.ENDED
    return [(one.code, one.certainty.value) for one in judge(found, job_id).verdicts]


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("exc", [("exit-unknown", "unknown")]),
        ("ok", [("ok", "proven")]),
        # Steps called `sh`, which the user may also have attached.
        ("hidden", [("step-failed", "likely")]),
        ("hidsegv", [("step-failed", "likely")]),
        ("stepkill", [("step-failed", "likely")]),
        # These ran on when the script ended, and Slurm ended them.
        ("left", [("ok", "likely")]),
        ("left-killed", [("ok", "likely")]),
        ("one-task", [("step-failed", "likely")]),
        ("kill-on-bad-exit", [("ok", "likely")]),
        # The script ended this step itself: its state names a uid.
        ("helper", [("ok", "proven")]),
        ("killed", [("killed-unknown", "unknown")]),
        ("cancel", [("cancelled", "proven")]),
        ("timeout", [("timeout", "proven")]),
        ("requeue", [("exit-unknown", "unknown")]),
    ],
)
def test_the_accounting_alone(name: str, verdicts: list[tuple[str, str]]) -> None:
    assert _diagnosed(name) == verdicts


def _rows(codes: str, step: str = "") -> str:
    """Rows of a job that failed with these codes; of one that ended with 0 if a step did."""
    state = "COMPLETED" if step else "FAILED"
    head = RECORDED["exc"].split("\n")[0].replace("FAILED", state)
    rows = [head.replace("1:0", "0:0" if step else codes)]
    if step:
        line = RECORDED["hidden"].split("\n")[2]
        rows.append(line.replace("31.0", "29.0").replace("3:0", step))
    return "\n".join(rows)


def _judged(rows: str, log: str = "", record: str = "") -> Verdict:
    gone = ("slurm_load_jobs error: Invalid job id specified", 1)
    sections = {
        "job": (record, 0) if record else gone,
        "steps": (rows, 0),
        "log-out": (f"/h/29.out\ntk-file {len(log)} 1795634664\n{log}", 0),
    }
    found = SlurmInspector().parse(_answer(sections), "29", "tk-1")
    return judge(found, "29").verdicts[0]


@pytest.mark.parametrize(
    ("codes", "log", "code", "certainty", "words"),
    [
        ("127:0", "", "exit-unknown", "unknown", "127 or 255"),
        ("126:0", "", "exit-unknown", "unknown", "126 or 254"),
        ("127:0", "/s/slurm_script: line 3: tran: command not found", "not-found", "likely", ""),
        ("0:0", "", "exit-unknown", "unknown", "0 or 128"),
        ("11:0", "", "segfault", "likely", "11 or 139"),
        ("11:0", "/s: line 3: 12 Segmentation fault      ./a", "segfault", "likely", "11 or 139"),
        ("11:0", "mycode: error 11: no input", "exit-unknown", "unknown", "11 or 139"),
        ("11:0", "Caught signal 11 (invalid address)\nbye", "segfault", "likely", "11 or 139"),
        ("9:0", "", "exit-unknown", "unknown", "9 or 137"),
        ("9:0", "/s/slurm_script: line 3: 12 Killed      ./a", "killed-unknown", "unknown", ""),
        ("15:0", "", "exit-unknown", "unknown", "15 or 143"),
        ("0:9", "", "killed-unknown", "unknown", "0:9"),
    ],
)
def test_sacct_shows_codes_from_128_on_less_128(
    codes: str, log: str, code: str, certainty: str, words: str
) -> None:
    """PRINT_EXITCODE in Slurm's src/sacct/print.c."""
    found = _judged(_rows(codes), log)
    assert (found.code, found.certainty.value) == (code, certainty)
    assert any(words in one.text for one in found.because)
    if code == "exit-unknown":
        assert f"it ended with exit code {words}" in found.sentence
        assert not log or f"its log's last line: {log}" in [one.text for one in found.because]


def test_a_step_by_sacct_may_have_ended_with_128_more() -> None:
    found = _judged(_rows("", "127:0"))
    assert (found.code, found.certainty.value) == ("step-failed", "likely")
    assert "step 0 (sh) ended with exit code 127 or 255" in found.sentence
    assert "exit code 0 or 128" in _judged(_rows("", "0:0")).sentence


@pytest.mark.parametrize(
    ("codes", "step", "code", "certainty", "words"),
    [
        ("11:0", "0:11", "segfault", "proven", "crashed: segmentation fault"),
        ("9:0", "0:9", "killed-unknown", "unknown", "failed: a process of it was killed (KILL)"),
        ("11:0", "0:6", "segfault", "likely", "crashed: segmentation fault"),
    ],
)
def test_the_signal_of_a_step_says_more_than_a_code_that_may_be_another(
    codes: str, step: str, code: str, certainty: str, words: str
) -> None:
    found = _judged(f"{_rows(codes)}\n" + _rows("", step).partition("\n")[2])
    assert (found.code, found.certainty.value) == (code, certainty)
    assert words in found.sentence
    by_step = f"step 0 (sh) ended with {'SEGV' if step == '0:11' else 'KILL'}"
    assert (by_step in [one.text for one in found.because]) is (step != "0:6")


def test_scontrols_codes_are_whole() -> None:
    record = "JobId=29 JobState=FAILED ExitCode={}:0 DerivedExitCode={}:0 StartTime=1795634663"
    found = _judged(_rows("127:0"), record=record.format(255, 0))
    assert "ended with exit code 255," in found.sentence
    assert _judged(_rows("127:0"), record=record.format(127, 0)).code == "not-found"
    found = _judged(_rows("", "3:0"), record=record.format(0, 3).replace("FAILED", "COMPLETED"))
    assert found.sentence.endswith("ended with exit code 3")


def test_the_black_box_tells_which_code_it_was() -> None:
    job = accounted_job({"steps": Section(_rows("127:0"), 0)}, "29")
    for code, whole in (
        (255, "with exit code 255"),
        (127, "with exit code 127"),
        (3, "with exit code 127 or 255"),
        (None, "with exit code 127 or 255"),
    ):
        case = make_case(job, EndView(), 0.0, BoxView(agent_code=code))
        assert str(case.exit) == whole


def _array(*states: str) -> str:
    """Rows of an array, whose elements end one after another; each has a step."""
    head, step = RECORDED["exc"].split("\n")[0], RECORDED["hidden"].split("\n")[2]
    rows = []
    for index, state in enumerate(states):
        end, code = str(1795634700 + index), "0:0" if state == "COMPLETED" else f"{index + 1}:0"
        row = head.replace("FAILED", state).replace("1:0", code).replace("1795634664", end)
        rows.append(row.replace("29", f"60_{index}", 1))
        row = step.replace("FAILED", state).replace("3:0", code).replace("1795634664", end)
        rows.append(row.replace("31", f"60_{index}", 1))
    return "\n".join(rows)


def _elements(rows: str) -> tuple[str, int]:
    """The section that the script makes of an array's rows."""
    own = [row for row in rows.split("\n") if "." not in row.split(SEPARATOR)[0]]
    return "\n".join([str(len(own)), *own]), 0


@pytest.mark.parametrize(
    ("states", "code", "text", "element"),
    [
        ("COMPLETED FAILED COMPLETED COMPLETED", "exit-unknown",
         "1 of 4 elements failed, the first is 60_1", "60_1"),
        ("COMPLETED CANCELLED FAILED FAILED", "exit-unknown",
         "2 of 4 elements failed, the first is 60_2", "60_2"),
        ("COMPLETED COMPLETED", "ok", "none of 2 elements failed; this is about 60_1", "60_1"),
        ("FAILED RUNNING", "exit-unknown",
         "1 of 2 elements failed, the first is 60_0; 1 of them not over yet", "60_0"),
    ],
)  # fmt: skip
def test_of_an_array_the_element_that_failed_first_is_judged(
    states: str, code: str, text: str, element: str
) -> None:
    rows, gone = _array(*states.split()), ("Invalid job id specified", 1)
    log = ("/h/log\ntk-file 9 1795634664\nKeyError", 0)
    sections = {"job": gone, "elements": _elements(rows), "steps": (rows, 0), "log-out": log}
    found = SlurmInspector().parse(_answer(sections), "60", "tk-1")
    assert found.job is not None and found.end is not None
    assert (found.job.job_id, found.end.logs) == (element, ())
    assert [step.end_s for step in found.end.steps] == [found.job.end_s]
    first = judge(found, "60").verdicts[0]
    assert (first.code, first.because[0].text) == (code, text)
    assert first.next_steps[0].command == f"tk why {element}"
    # One that was asked for by name is judged by itself.
    alone = "\n".join(row for row in rows.split("\n") if row.startswith(element))
    found = SlurmInspector().parse(_answer({**sections, "steps": (alone, 0)}), element, "tk-1")
    assert found.end is not None and (found.end.array, len(found.end.logs)) == ("", 1)


def test_the_log_of_an_arrays_record_is_that_of_its_element() -> None:
    record = "JobId=61 ArrayJobId=60 ArrayTaskId={} JobState=FAILED ExitCode=2:0"
    log = ("/h/log\ntk-file 9 1795634664\nKeyError", 0)
    for task, logs in ((1, 1), (0, 0)):
        sections = {"job": (record.format(task), 0), "log-out": log}
        rows = _array("COMPLETED", "FAILED")
        sections |= {"elements": _elements(rows), "steps": (rows, 0)}
        found = SlurmInspector().parse(_answer(sections), "60", "tk-1")
        assert found.job is not None and found.end is not None
        assert (found.job.job_id, len(found.end.logs)) == ("60_1", logs)


def test_a_requeued_job_has_two_runs() -> None:
    end = end_view({"steps": Section(RECORDED["requeue"], 0)}, None)
    assert end.job is not None and (end.job.state, end.job.exit_code) == ("FAILED", 3)
    assert [one.state for one in end.earlier] == ["REQUEUED"]
    assert [step.step for step in end.steps] == ["batch"]
    assert end.steps[0].exit_code == 3


def test_how_many_tasks_a_step_had() -> None:
    rows = RECORDED["hidden"].replace(f"{SEPARATOR}1{SEPARATOR}", f"{SEPARATOR}32{SEPARATOR}")
    job, *steps = rows_of(rows)
    assert job.step.tasks is None and [row.step.tasks for row in steps] == [32, 32]


@pytest.mark.parametrize(
    ("limit", "limit_s", "unlimited"),
    [("60", 3600, False), ("UNLIMITED", None, True), ("Partition_Limit", None, False)],
)
def test_without_a_time_limit_or_without_a_record_of_it(
    limit: str, limit_s: int | None, unlimited: bool
) -> None:
    fields = RECORDED["cancel"].split("\n")[0].split(SEPARATOR)
    fields[FIELDS.split(",").index("TimelimitRaw")] = limit
    job = accounted_job({"steps": Section(SEPARATOR.join(fields), 0)}, "35")
    assert job is not None and (job.time_limit_s, job.unlimited) == (limit_s, unlimited)


def test_it_says_who_cancelled() -> None:
    sections = {"steps": Section(RECORDED["cancel"], 0), "users": Section("own 0 root", 0)}
    job = accounted_job(sections, "35")
    assert job is not None and job.native_state == "CANCELLED by 0"
    assert end_view(sections, None).own_uid == 0


def test_without_a_database_it_says_so() -> None:
    end = end_view({"steps": DISABLED}, None)
    assert end.missing == (
        "sacct (steps): Slurm accounting storage is disabled",
        "log: its path is not on record any more",
    )


def test_logs_and_why_there_is_none() -> None:
    found = end_view(
        {
            "steps": DISABLED,
            "log-out": Section("/h/7.out\ntk-file 6 1795634689\nstep 1", 0),
            "log-err": Section("/no/7.err\ntk-no-directory", 0),
        },
        None,
    )
    out, err = found.logs
    assert (out.path, out.text, out.size_bytes) == ("/h/7.out", "step 1", 6)
    assert out.written_s == 1795634689 and not out.problem
    assert err.no_directory and err.problem == "its directory is not there"
    assert out.born_s is None
    for born, known in (("1795634600", 1795634600), ("0", None), ("-", None), ("?", None)):
        head = f"/h/7.out\ntk-file 6 1795634689 {born}\nstep 1"
        assert end_view({"log-out": Section(head, 0)}, None).logs[0].born_s == known
    assert end_view({"log-out": Section("/h/x\ntk-absent", 0)}, None).missing[-1] == (
        "log /h/x: it is not there"
    )
    cut = f"/h/7.out\ntk-file {LOG_BYTES + 1} 1795634689\nhalf a line\nwhole"
    assert end_view({"log-out": Section(cut, 0)}, None).logs[0].text == "whole"


def test_file_systems() -> None:
    text = (
        "tk-room /data/x\n/dev/sda1 1000 990 10 99% /data\n/dev/sda1 500 500 0 100% /data\n"
        "tk-room /home/me\nserver:/home 4000 1000 3000 25% /home\nserver:/home 0 0 0 - /home\n"
    )
    data, home = end_view({"rooms": Section(text, 0)}, None).rooms
    assert (data.mounted_on, data.free_bytes, data.used) == ("/data", 10240, 0.99)
    assert data.inodes_used == 1.0
    assert home.inodes_used is None and home.size_bytes == 4000 << 10


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00.560", 0.56), ("01:02:03", 3723), ("1-00:00:01", 86401), ("", None), ("x", None)],
)
def test_total_cpu(text: str, seconds: float | None) -> None:
    assert cpu_seconds(text) == seconds


_ROW = st.lists(
    st.text(max_size=8)
    | st.sampled_from(["7", "7.0", "7.batch", "FAILED", "CANCELLED by 0", "0:9", "1795634663",
                       "1G", "...K", "9" * 400, "mem=4G,gres/gpu=2", "n[1-3]", "n[1-", "/w"]),
    min_size=FIELDS.count(",") + 1,
    max_size=FIELDS.count(",") + 1,
).map(SEPARATOR.join)  # fmt: skip


@given(st.lists(_ROW | st.text(max_size=20), max_size=8).map("\n".join))
def test_any_rows(text: str) -> None:
    last, earlier = last_run(rows_of(text))
    assert len(last) + len(earlier) <= len(text.split("\n"))
    end_view({"steps": Section(text, 0)}, None)
    accounted_job({"steps": Section(text, 0)}, "7")


@given(
    st.dictionaries(
        st.sampled_from(["steps", "users", "log-out", "log-err", "rooms"]),
        st.builds(Section, st.text(max_size=60) | st.sampled_from([
            "/x\ntk-file 1 1\n", "/x\ntk-file " + "9" * 30 + " 1\n", "tk-room /x\na 1 1 1 1% /\n",
            "\ntk-room \n", "own 1 x\nuid 2 y", "own " + "9" * 12,
        ]), st.integers(0, 255)),
    )
)  # fmt: skip
def test_any_sections(sections: dict[str, Section]) -> None:
    assert isinstance(end_view(sections, None), EndView)


@given(st.text(max_size=300))
def test_any_answer(text: str) -> None:
    done = _answer({"job": (text, 0), "steps": (text, 0), "log-out": (text, 0)})
    found = SlurmInspector().parse(done, "7", "tk-1")
    assert judge(found, "7").verdicts
