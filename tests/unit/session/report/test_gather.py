"""What `tk bugreport` collects without a session."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.config.load import assemble
from tunnelkit.diagnosis.verdict import Certainty, Diagnosis, Evidence, Stage, Verdict
from tunnelkit.diagnosis.verdict_json import to_json
from tunnelkit.errors import ConnectionFailed
from tunnelkit.session.backends.registry import make_link
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.report.diagnosis import keep_diagnosis, last_diagnosis
from tunnelkit.session.report.gather import gather
from tunnelkit.session.runtime.event_log import EventLog
from tunnelkit.session.runtime.paths import SessionPaths


async def test_events_are_scrubbed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", 'quoted" \\secret')
    paths = SessionPaths("0", tmp_path / "r", tmp_path)
    settings = assemble(
        tmp_path, None, cwd=tmp_path, overrides={"cluster.login": "gw.uni.example"}, environ={}
    )
    refused = ConnectionFailed("no way to gw.uni.example", cause='quoted" \\secret', hint="wait")
    events = EventLog(paths.events)
    events.add("state", "gw.uni.example", state="connecting")
    events.add("error", refused.one_line(), error=refused)
    scene = CheckContext(settings, paths, project_dir=tmp_path, make_link=make_link)
    files, _ = await gather(scene, ())
    found = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    assert [one["kind"] for one in found] == ["state", "error"]
    assert found[1]["error"]["cause"] == "[secret]" and found[1]["error"]["hint"] == "wait"
    assert "gw" not in files["events.jsonl"] and "jobs.log" not in files
    assert "diagnosis.json" not in files


async def test_the_last_diagnosis_has_codes_and_figures_but_no_names(tmp_path: Path) -> None:
    paths = SessionPaths("0", tmp_path / "r", tmp_path)
    settings = assemble(tmp_path, None, cwd=tmp_path, overrides={}, environ={})
    because = (
        Evidence("by 4682 (lchen), until 17:05; node7 is 1 GPU short", "squeue -p secretq", "by"),
        Evidence("/scratch/lchen/run.out: 63.8 GB of 64 GB", "/home/lchen/x.log"),
    )
    verdict = Verdict("busy", "waits for lchen", Certainty.PROVEN, because)
    diagnosis = Diagnosis("4711", Stage.WAITING, (verdict,), ("sprio of lchen: no answer",), 1.0)
    keep_diagnosis(paths.diagnosis, to_json(diagnosis))
    scene = CheckContext(settings, paths, project_dir=tmp_path, make_link=make_link)
    text = (await gather(scene, ()))[0]["diagnosis.json"]
    found = json.loads(text)
    assert found["verdicts"][0]["code"] == "busy"
    assert found["verdicts"][0]["certainty"] == "proven"
    assert "until 17:05" in found["verdicts"][0]["because"][0]["text"]
    assert "63.8 GB of 64 GB" in found["verdicts"][0]["because"][1]["text"]
    assert found["verdicts"][0]["because"][0]["source"] == "squeue -p [word]"
    for name in ("lchen", "node7", "secretq", "scratch", "run.out", "4711"):
        assert name not in text


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda part: (
            st.lists(part)
            | st.dictionaries(
                st.sampled_from(["verdicts", "code", "because", "stage", "asked_s"]), part
            )
        ),
    )
)
def test_any_file_is_a_diagnosis_or_none(content: object) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "diagnosis.json"
        path.write_text(json.dumps(content))
        last_diagnosis(path)
