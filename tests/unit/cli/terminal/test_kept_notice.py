"""The line about kept jobs that a command begins with: from one file, and nothing is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.terminal.kept_notice import lines
from tunnelkit.session.runtime import kept_note
from tunnelkit.session.runtime.control_answers import KeptJob
from tunnelkit.session.runtime.paths import state_root
from tunnelkit.session.submit.kept import _read_state
from tunnelkit.session.submit.watch import refresh


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def kept(job: str, **facts: object) -> KeptJob:
    now = time.time()
    return _read_state(job, {"since_s": now - 60, "until_s": now + 600, **facts})


def test_a_kept_job_is_told_with_its_cost(state: Path) -> None:
    kept_note.note_submitted("login", "7")
    assert lines() == []
    refresh("login", [kept("7", node="node4", gpus=2)], ["7"])
    (line,) = lines()
    assert line.startswith("job 7 is kept since ") and ": tk keep" in line
    assert " on node4, costs 2 GPUs until " in line
    assert (state / "kept-jobs.json").stat().st_mode & 0o777 == 0o600
    refresh("login", [], [])
    assert lines() == [] and list(state.iterdir()) == []


def test_a_cluster_s_answer_changes_nothing_of_another_s(state: Path) -> None:
    kept_note.note_submitted("here", "7")
    kept_note.note_submitted("there", "8")
    refresh("here", [], ["7"])
    assert {one["job"] for one in kept_note.noted_jobs()} == {"7", "8"}


def test_reading_makes_nothing(state: Path) -> None:
    assert lines() == []
    refresh("login", [kept("7")], ["7"])
    assert not state.exists()


@given(
    data=st.binary(max_size=80)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda of: (
            st.lists(of)
            | st.dictionaries(
                st.sampled_from(["login", "job", "until_s", "node", "gpus", "since_s"]), of
            )
        ),
        max_leaves=9,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_note_is_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    where = tmp_path_factory.mktemp("state")
    (where / "kept-jobs.json").write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TK_STATE_DIR", str(where))
        assert all(one.isprintable() for one in lines())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs is asked")
def test_it_is_beside_the_sessions_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("TK_STATE_DIR", ""), ("HOME", str(tmp_path)), ("XDG_STATE_HOME", "")):
        monkeypatch.setenv(name, value)
        assert kept_note._path() == state_root() / "kept-jobs.json"


@pytest.mark.parametrize("words, told", [("version", True), ("help ports", False), ("-V", False)])
def test_a_command_at_a_terminal_begins_with_it(state: Path, words: str, told: bool) -> None:
    kept_note.note_submitted("login", "7")
    refresh("login", [kept("7", node="node4\x1b[2J")], ["7"])
    before = sorted((one.name, one.stat().st_mtime_ns) for one in state.iterdir())
    master, slave = os.openpty()
    code = "from tunnelkit.cli.main import main; main()"
    try:
        for stderr, shown in ((slave, told), (subprocess.PIPE, False)):
            done = subprocess.run(
                [sys.executable, "-c", code, *words.split()],
                stdout=subprocess.PIPE,
                stderr=stderr,
                check=True,
            )
            text = (done.stderr or b"").decode()
            if stderr == slave:
                os.write(slave, b".")  # there is something to read
                text = os.read(master, 4096).decode()
            assert ("job 7 is kept since" in text) is shown
            assert "\x1b[2J" not in text
    finally:
        os.close(master)
        os.close(slave)
    assert sorted((one.name, one.stat().st_mtime_ns) for one in state.iterdir()) == before
