"""The keeper's parts on this machine: its files, its processes, its words."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import until
from tunnelkit.keeper import waiting
from tunnelkit.keeper.attached import anybody, now_ticks
from tunnelkit.keeper.kept_files import KeptFiles
from tunnelkit.keeper.main import Settings, keep, parse_environ
from tunnelkit.keeper.script_process import End
from tunnelkit.keeper.slurm_job import JobRecord, resources
from tunnelkit.keeper.waiting import Cause, Keeping, Terms, cost, how


def test_states_are_private_and_gone_at_the_end(tmp_path: Path) -> None:
    files = KeptFiles(str(tmp_path / "kept"), "7")
    assert files.wish() == {}
    assert files.write({"job": "7"})
    path = tmp_path / "kept" / "7.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "kept" / "7.wish").write_text('{"number": "1"}')
    assert files.wish() == {"number": "1"}
    files.remove()
    assert list((tmp_path / "kept").iterdir()) == []


@given(data=st.binary(max_size=60))
def test_any_request_is_read(tmp_path_factory, data: bytes) -> None:
    where = tmp_path_factory.mktemp("kept")
    (where / "7.wish").write_bytes(data)
    assert isinstance(KeptFiles(str(where), "7").wish(), dict)


def test_files_of_a_run_before_go_and_those_of_another_cluster_stay(tmp_path: Path) -> None:
    files = KeptFiles(str(tmp_path), "12")
    for state, stays in (({"cluster": "alpha"}, False), ({"cluster": "beta"}, True), ({}, False)):
        files.write(state)
        files.remove_earlier("alpha")
        assert (tmp_path / "12.json").exists() is stays


def test_places_of_an_array_are_taken_once(tmp_path: Path) -> None:
    files = KeptFiles(str(tmp_path), "7")
    assert [files.take_place("3", 2) for _ in range(3)] == [True, True, False]
    assert files.take_place("4", 1) is True
    assert KeptFiles("/proc/nowhere", "7").take_place("3", 1) is None


def agent(tmp_path: Path, words: list[str], job: str) -> subprocess.Popen[bytes]:
    """A process that looks like tk's agent, outside of this process's children."""
    script = tmp_path / "agent-0123abcd.zip"
    script.write_text("import sys, time; print(flush=True); time.sleep(60)\n")
    env = {**os.environ, "SLURM_JOB_ID": job}
    argv = [sys.executable, str(script), *words]
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    return process


def test_a_link_to_an_agent_counts_and_the_agent_alone_does_not(tmp_path: Path) -> None:
    """Asked by a process beside them, as the keeper is."""
    since, job = now_ticks() - 1000, "987654321"
    code = f"from tunnelkit.keeper.attached import anybody; print(anybody({job!r}, {since}))"

    def told() -> str:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()

    assert told() == "False"
    started = [agent(tmp_path, ["serve", "tk-x-1"], job)]
    try:
        assert told() == "False"
        started.append(agent(tmp_path, ["attach", "tk-y-2"], "1"))
        assert told() == "False"  # another job's
        started.append(agent(tmp_path, ["attach", "tk-x-1"], "1"))
        assert told() == "True"
        started.pop().kill()
        until(lambda: told() == "False", "the link is gone")
        shell = subprocess.Popen(["sleep", "60"], env={**os.environ, "SLURM_JOB_ID": job})
        started.append(shell)
        until(lambda: told() == "True", "a shell is seen")
        # What was there before the script failed is no visitor.
        assert not anybody(job, now_ticks() + 1000)
    finally:
        for process in started:
            process.kill()
            process.wait()


def in_job(argv: list[str], job: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "SLURM_JOB_ID": job}
    return subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, start_new_session=True)


def test_what_the_script_left_running_is_no_visitor_and_who_was_there_is_one() -> None:
    """A monitor starts a program each minute; somebody's shell was open before the failure."""
    job = "987654322"
    loop = in_job(["sh", "-c", "read x; (sleep 61 &); sleep 60; :"], job)
    typed = "import pty; pty.spawn(['bash', '--norc'])"
    shell = in_job([sys.executable, "-c", typed], job)
    started = [loop, shell]
    until(lambda: len(family(shell.pid)) == 2, "bash is there")
    since = now_ticks()
    code = f"from tunnelkit.keeper.attached import anybody; print(anybody({job!r}, {since}))"

    def seen() -> str:
        argv = [sys.executable, "-c", code]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    try:
        until(lambda: now_ticks() > since + 1, "the clock goes on")
        begin(loop, b"\n")
        until(lambda: len(family(loop.pid)) == 3, "its programs run")
        assert seen() == "False"
        begin(shell, b"sleep 60\n")
        until(lambda: len(family(shell.pid)) == 3, "somebody works")
        assert seen() == "True"
        shell.kill()
        until(lambda: seen() == "False", "he has gone")
        started.append(in_job(["sleep", "60"], job))
        until(lambda: seen() == "True", "a visitor is seen")
    finally:
        for process in started:
            for pid in family(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


def begin(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def family(first: int) -> set[int]:
    """A process's session, and those of its children, as they live now."""
    found: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(path.parent.name)] = fields
    sessions = {str(first), *(pid for pid in map(str, found) if found[int(pid)][1] == str(first))}
    return {pid for pid, fields in found.items() if fields[3] in sessions}


@given(data=st.binary())
def test_any_environment_is_parsed(data: bytes) -> None:
    resources(parse_environ(data))


def test_the_words() -> None:
    assert parse_environ(b"A=1\0B=\0=x\0C\0") == {b"A": b"1", b"B": b""}
    assert (how(End(3, 0, False)), how(End(0, 9, False))) == ("exit code 3", "SIGKILL")
    facts = resources(
        {b"SLURM_GPUS_ON_NODE": b"2", b"SLURM_JOB_NUM_NODES": b"2", b"SLURM_CPUS_ON_NODE": b"8"}
    )
    assert facts == {"gpus": 4, "cpus": 16, "nodes": 2}
    assert cost(dict(facts), 1800) == "2 GPU-hours"
    assert cost({"gpus": 0, "cpus": 8}, 900) == "2 CPU-hours"


class _Job:
    """A job whose scheduler says this about it; comments are those that were set."""

    variable, full_id, job_id, group, array = "SLURM_JOB_ID", "7", "7", "", None
    cluster, name, node = "c", "train", "n1"

    def __init__(self, record: JobRecord | None) -> None:
        self._record = record
        self.comments: list[str] = []

    def record(self) -> JobRecord | None:
        return self._record

    def set_comment(self, text: str) -> bool:
        self.comments.append(text)
        return True

    def resources(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("record", "last"),
    [
        (JobRecord(None, "my own note"), ["my own note"]),  # without a time limit
        (JobRecord(2e10, "x" * 3000), ["x" * 3000]),
        (JobRecord(2e10, ""), [""]),
        (None, []),  # Slurm does not answer: what is not known is not overwritten
    ],
)
def test_the_users_own_comment_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: JobRecord | None, last: list[str]
) -> None:
    job = _Job(record)
    files = KeptFiles(str(tmp_path), "c-7")
    cause = Cause("its script failed", "after exit code 1")
    keeping = Keeping(job, files, Terms(60.0, 60.0, 5.0), cause, {})
    monkeypatch.setattr(keeping, "_arm", lambda: None)
    monkeypatch.setattr(
        waiting,
        "signal",
        SimpleNamespace(
            alarm=lambda seconds: None,
            pthread_sigmask=lambda how, what: None,
            SIG_BLOCK=0,
            SIGALRM=14,
        ),
    )
    assert keeping.begin() == ""
    keeping.finish()
    shown = [] if record is None else [one for one in job.comments if one.startswith("tk: kept")]
    assert len(shown) == (0 if record is None else 1)
    assert job.comments[len(shown) :] == last


def test_an_element_too_near_its_limit_leaves_its_place_to_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _Job(JobRecord(time.time() + 60, ""))
    job.group = "3"
    keep(job, Settings(600.0, 60.0, 300.0, 1, str(tmp_path), ""), End(1, 0, False))
    assert "its time limit is too near" in capsys.readouterr().err
    assert [KeptFiles(str(tmp_path), "c-8").take_place("3", 1) for _ in range(2)] == [True, False]


def test_a_kept_job_is_marked_once_its_scheduler_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _Job(None)
    cause = Cause("its script failed", "after exit code 1")
    keeping = Keeping(job, KeptFiles(str(tmp_path), "c-7"), Terms(60.0, 60.0, 5.0), cause, {})
    monkeypatch.setattr(keeping, "_arm", lambda: None)
    assert keeping.begin() == "" and job.comments == []
    job._record = JobRecord(2e10, "my own note")
    keeping._asked = -1e9
    assert keeping.step() == ""
    (shown,) = job.comments
    assert shown.startswith("tk: kept after exit code 1")
