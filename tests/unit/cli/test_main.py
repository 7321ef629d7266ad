"""The edge of the program: whatever goes wrong is one line and a code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tunnelkit import __version__
from tunnelkit.cli import fast_path
from tunnelkit.cli import main as cli
from tunnelkit.cli.registry import COMMANDS
from tunnelkit.cli.terminal.output import StatusLine
from tunnelkit.cli.terminal.stream_end import exit_code
from tunnelkit.cli.views.startup import progress
from tunnelkit.cli.views.status import hours, lines, other_version, printable
from tunnelkit.errors import DebugError, ExitCode, HostKeyError, TunnelkitError


def fails_with(error: BaseException, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run `tk` with a command that raises `error`; the exit code."""

    def fail(given: list[str]) -> None:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            DebugError("it failed", cause="so\nit is", hint="try that"),
            10,
            "tk: it failed: so it is — try that\n",
        ),
        (HostKeyError("changed"), 6, "tk: changed\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            ZeroDivisionError("oops"),
            1,
            "tk: tk met an error of its own, ZeroDivisionError: oops — "
            "`tk --debug COMMAND` shows where; please report it with `tk bugreport`\n",
        ),
    ],
)
def test_errors(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fails_with(error, monkeypatch, "status") == code
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", line)


def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TunnelkitError):
        fails_with(DebugError("it failed"), monkeypatch, "--debug", "status")
    # After the command the word is the command's own.
    assert fails_with(DebugError("it failed"), monkeypatch, "run", "x", "--debug") == 10


def test_a_missing_directory_is_a_mistake(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); from tunnelkit.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=gone, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("tk: the current directory can't be used: ")


def test_a_fast_command_is_really_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called = {}
    monkeypatch.setattr(
        "tunnelkit.cli.views.status.show_status", lambda **values: called.update(values)
    )
    assert fast_path.run(["status", "--json"])
    assert called == {"as_json": True}
    assert not fast_path.run(["status", "--jsno"])
    assert not fast_path.run([])


# -- words ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "detail", "text"),
    [
        ("new", "", ""),
        ("connecting", "login", "connecting to login"),
        ("preparing", "login", "looking at login: scheduler, Python"),
        ("pending", "", "asking for the node"),
        ("pending", "job 5: it waits", "queued, job 5: it waits"),
        ("starting", "node1", "starting the agent on node1"),
        ("reconnecting", "lost", "reconnecting: lost"),
        ("closing", "", "cleaning up"),
        ("ready", "", ""),
        ("failed", "why", ""),
    ],
)
def test_progress(state: str, detail: str, text: str) -> None:
    assert progress(state, detail) == text


def test_progress_that_is_piped_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = StatusLine()
    for text in ("one", "one", "two"):
        line.update(text)
        line.clear()
    assert capsys.readouterr().err == "one\ntwo\n"


@pytest.mark.parametrize(
    ("detail", "code"),
    [
        ({"code": 0, "signal": None}, 0),
        ({"code": 3}, 3),
        ({"signal": "SIGKILL"}, 137),
        ({"signal": "SIGTERM", "code": None}, 143),
        ({"error": "x: command not found"}, 127),
        ({"error": "x: Permission denied"}, 126),
        ({"error": "the session ended"}, 1),
        ({}, 1),
    ],
)
def test_the_far_end_of_a_command_as_a_code(detail: dict[str, object], code: int) -> None:
    assert exit_code(detail) == code


def test_a_failure_of_the_session_is_raised() -> None:
    with pytest.raises(DebugError, match="no node"):
        exit_code({"failure": DebugError("no node").to_json()})


def test_status_lines() -> None:
    status = {
        "state": "ready",
        "detail": "",
        "project": "/p\nq",
        "login": "login",
        "job": {"id": "7", "nodes": ["node1"], "time_left_s": 3725},
        "agent": {"node": "node1", "cuda_visible_devices": "0,1"},
        "route": "ssh",
        "mirror": {
            "state": "in_sync",
            "text": "in sync",
            "reason": None,
            "files": 3,
            "bytes": 4500,
            "remote": "/r",
            "progress": None,
            "warnings": ["a is big"],
        },
        "debug_port": 40056,
        "loops": [],
        "forwards": [{"forward": "1:127.0.0.1:2", "route": "wire"}],
    }
    assert lines(json.loads(json.dumps(status))) == [
        "session  ready",
        "project  '/p\\nq'",
        "login    login",
        "job      7 on node1, 1:02:05 left",
        "node     node1 by ssh, CUDA_VISIBLE_DEVICES=0,1",
        "mirror   in sync; 3 files (4.5 kB) -> /r",
        "  warning: a is big",
        "loop     none; F5 port 127.0.0.1:40056",
        "forward  1:127.0.0.1:2 by wire",
    ]


def test_small_words() -> None:
    assert hours(59) == "0:00:59"
    assert printable("/a b") == "/a b"
    assert printable("/a\x1bb") == "'/a\\x1bb'"


@pytest.mark.parametrize("words", [["version"], ["-V"], ["--version"]])
def test_the_version_is_shown_by_each_usual_word(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        cli.main(words)
    except SystemExit as ended:
        assert not ended.code
    assert capsys.readouterr().out.startswith("tk 0.")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pu", "'up'"),
        ("stauts", "'status'"),
        ("stat", "'status'"),
        ("pul", "'pull'"),
        ("looop", "'loop'"),
        ("xyzzy", None),
    ],
)
def test_a_mistyped_command_names_the_one_that_was_meant(
    typed: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([typed])
    assert ended.value.code == ExitCode.USAGE
    said = capsys.readouterr().err
    if meant is None:
        assert "Did you mean" not in said
    else:
        assert f"Did you mean {meant}" in said


def test_a_number_that_is_none_is_said_in_words_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["up", "--gpus", "two"])
    assert ended.value.code == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "--gpus" in said and "it takes a whole number" in said
    assert "Input should be" not in said and said.count("\n") == 1


def test_help_has_each_command_once_below_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    said = capsys.readouterr().out
    headings = [line.rstrip(":") for line in said.splitlines() if line[:1].isalpha()]
    assert "Start and end" in headings and "Others" not in headings
    found = [
        line.split()[0] for line in said.splitlines() if line.startswith("  ") and line[2] != " "
    ]
    for name in COMMANDS:
        assert found.count(name) == 1, name
    assert "..." not in said.partition("Start and end")[2]


def test_a_session_of_another_version_is_noticed() -> None:
    said = other_version({"version": "0.0.9"})
    assert said is not None and "started by tk 0.0.9" in said and "`tk down && tk up`" in said
    assert other_version({"version": __version__}) is None


@pytest.mark.parametrize(
    ("line", "code"),
    [("version >&-", 0), ("trust --show >&-", 0), ("config show >&-", 0), ("status 2>&-", 4)],
)
def test_a_closed_stream_is_no_error(tmp_path: Path, line: str, code: int) -> None:
    tk = Path(sys.executable).parent / "tk"
    words = ["sh", "-c", f'exec "$0" {line}', str(tk)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_any_text_can_be_written_in_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    cli._open_streams()
    print("so — so", flush=True)
    assert raw.getvalue() == b"so \\u2014 so\n"
