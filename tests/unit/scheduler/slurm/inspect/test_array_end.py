"""The end of a large array, whose rows are too many to send all of them. The real script, with a
sacct that prints rows as a real one does: three for each element."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.scheduler.slurm.inspect.test_forgotten_log import VALUES, Cluster
from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.verdict import Verdict
from tunnelkit.scheduler.sections import Section
from tunnelkit.scheduler.slurm.inspect import ended, inspector
from tunnelkit.scheduler.slurm.inspect.accounting import FIELDS, SEPARATOR, array_end
from tunnelkit.session.why.diagnose import judge

_BEGUN_S = 1_795_635_001


def _row(job_id: str, **values: str) -> str:
    row = {**VALUES, "TotalCPU": "00:00:00", "JobID": job_id, "WorkDir": "/home/u/work" * 8}
    return SEPARATOR.join({**row, **values}.get(one, "") for one in FIELDS.split(","))


def _array(cluster: Cluster, ends: list[tuple[str, int | None]]) -> None:
    """The accounting has an array whose elements ended so: state, seconds after the start."""
    rows = []
    for index, (state, end_s) in enumerate(ends):
        end = "Unknown" if end_s is None else str(_BEGUN_S + end_s)
        code = "3:0" if state == "FAILED" else "0:0"
        for step in ("", ".batch", ".extern"):
            rows.append(_row(f"60_{index}{step}", State=state, ExitCode=code, End=end))
    (cluster.base / "rows").write_text("\n".join(rows) + "\n")
    cluster.put("sacct", f"case $* in *WorkDir*) cat '{cluster.base}/rows' ;; esac")


def _judged(cluster: Cluster) -> tuple[Verdict, tuple[StepView, ...]]:
    found = cluster.ask(job="60")
    assert found.end is not None
    return judge(found, "60").verdicts[0], found.end.steps


@pytest.mark.parametrize(
    ("ends", "code", "text"),
    [
        ([("COMPLETED", 9)] * 500 + [("FAILED", 999 - n) for n in range(500)], "exit-unknown",
         "500 of 1000 elements failed, the first is 60_999"),
        ([("RUNNING", None)] * 500 + [("CANCELLED by 0", 9)] * 499 + [("FAILED", 10)],
         "exit-unknown",
         "1 of 1000 elements failed, the first is 60_999; 500 of them not over yet"),
        ([("COMPLETED", 9)] * 999 + [("CANCELLED by 0", 9)], "cancelled",
         "1 of 1000 elements were cancelled, the first is 60_999"),
        ([("COMPLETED", n) for n in range(1000)], "ok",
         "none of 1000 elements failed; this is about 60_999"),
    ],
)  # fmt: skip
def test_all_of_a_thousand_elements_are_counted(
    tmp_path: Path, ends: list[tuple[str, int | None]], code: str, text: str
) -> None:
    cluster = Cluster(tmp_path)
    _array(cluster, ends)
    first, steps = _judged(cluster)
    assert (first.code, first.because[0].text) == (code, text)
    assert [one.step for one in steps] == ["batch", "extern"]
    assert len((cluster.base / "asked").read_text().splitlines()) <= 6


def test_of_elements_that_were_not_all_sent_none_is_said_to_have_ended_well_for_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    _array(cluster, [("COMPLETED", n) for n in range(20)])
    assert _judged(cluster)[0].certainty.value == "proven"
    cut = inspector.SCRIPT.replace(f"%.{ended.ELEMENTS_BYTES}s", "%.300s")
    monkeypatch.setattr(inspector, "SCRIPT", cut)
    first = _judged(cluster)[0]
    assert (first.code, first.certainty.value) == ("ok", "likely")
    assert first.because[0].text.startswith("none of the first 5 elements listed failed")


def test_an_answer_that_sacct_did_not_end_is_not_whole() -> None:
    rows = "\n".join(_row(f"60_{n}", State="COMPLETED") for n in range(2))
    for text, code, whole in ((f"2\n{rows}", 0, True), (f"2\n{rows}", 124, False)):
        found = array_end(Section(text, code))
        assert found is not None and found.whole is whole
    assert array_end(Section("1\n" + _row("60_1"), 0)) is None
