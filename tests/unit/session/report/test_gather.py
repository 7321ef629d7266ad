"""What `tk bugreport` collects without a session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunnelkit.config.load import assemble
from tunnelkit.errors import ConnectionFailed
from tunnelkit.session.backends.registry import make_link
from tunnelkit.session.doctor.context import CheckContext
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
