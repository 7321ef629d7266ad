"""The hook in a script's Pythons: what it changes, when it stands, and who may ask it."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import until
from tests.unit.test_agent_zip import interpreters
from tunnelkit.agent.debug.standing import ask, is_standing
from tunnelkit.debuggee.python_command import is_launcher as launches
from tunnelkit.debuggee.python_command import parse
from tunnelkit.keeper.hook.program_hook import is_launcher
from tunnelkit.keeper.kept_files import MOST_STANDING, KeptFiles, StandingFiles
from tunnelkit.keeper.main import Settings
from tunnelkit.session.submit.job_body import hook_files

SHOWS = """
import os, sys
print(os.environ.get("PYTHONPATH"), [one for one in sys.path if one.endswith(".at")])
"""
NOT_KEPT = (
    "raise SystemExit(3)",
    "raise KeyboardInterrupt",
    "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
    "import sys\ntry: 1 / 0\nexcept Exception: sys.excepthook(*sys.exc_info())",
)


@pytest.fixture
def files(tmp_path: Path) -> StandingFiles:
    found = KeptFiles(str(tmp_path), "7").standing()
    assert found.put(hook_files())
    return found


def start(
    files: StandingFiles, *words: str, path: str = "", python: str = sys.executable
) -> subprocess.Popen[str]:
    own = os.pathsep.join(one for one in (files.directory, path) if one)
    return subprocess.Popen(
        [python, *words],
        env={**os.environ, "PYTHONPATH": own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def standing(files: StandingFiles, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = start(files, *words)
    try:
        until(lambda: files.look(), "the program stands")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def test_a_program_sees_nothing_of_it_and_launchers_pass_it_on(
    files: StandingFiles, tmp_path: Path
) -> None:
    out, err = start(files, "-c", SHOWS).communicate()
    assert (out, err) == ("None []\n", "")
    out, err = start(files, "-c", SHOWS, path="/mine").communicate()
    assert (out, err) == ("/mine []\n", "")
    launcher = tmp_path / "torchrun"
    launcher.write_text(SHOWS)
    out, _ = start(files, "-u", str(launcher)).communicate()
    assert out == f"{files.directory} []\n"
    # A sitecustomize of the user's own is read as ever.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.mine = 1")
    out, _ = start(files, "-c", "import sys; print(sys.mine)", path=str(tmp_path)).communicate()
    assert out == "1\n"


@pytest.mark.parametrize(
    "words",
    [
        "torchrun a.py", "-u /usr/bin/torchrun a.py", "-m torch.distributed.run a.py",
        "a.py -m accelerate", "-um accelerate.commands.launch a.py", "-W ignore deepspeed a.py",
        "-c torchrun", "-m a accelerate", "-X dev -m deepspeed", "-Wignore a.py torchrun",
        "-m torch.distributed.running",
    ],
)  # fmt: skip
def test_launchers_are_those_of_loops(words: str) -> None:
    program = parse(words.split())
    assert is_launcher(["python", *words.split()]) is (program is not None and launches(program))


def test_it_stands_until_it_is_let_go(files: StandingFiles) -> None:
    code = "def f(row):\n    return row['label']\nprint('out')\nf({})"
    with standing(files, "-c", code) as process:
        (one,) = files.look()
        assert (one["error"], one["pid"]) == ("KeyError: 'label'", process.pid)
        (path,) = Path(files.directory).glob("*.json")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(os.stat(files.directory).st_mode) == 0o700
        files.answer(go=True)
        out, err = process.communicate(timeout=30)
        assert (out, process.returncode) == ("out\n", 1)
        assert err.count("Traceback") == 1 and err.count("stands at KeyError") == 1
        assert files.look() == []
    # Once it is let go, nothing stands any more.
    process = start(files, "-c", code)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "stands" not in err


def test_every_python_stands_or_is_left_alone(files: StandingFiles) -> None:
    """By its own hook, too. One that is too old gets nothing."""
    code = "import sys\nsys.excepthook = lambda *how: sys.stdout.write('mine')\n1 / 0"
    new = [start(files, "-c", code, python=one) for one in interpreters()]
    old = [
        str(one)
        for one in Path.home().glob(".pyenv/versions/[23].[67].*/bin/python")
        if subprocess.run([one, "-c", "pass"], check=False).returncode == 0
    ]
    try:
        for path in old:
            out, err = start(files, "-c", code, python=path).communicate(timeout=30)
            assert (out, err) == ("mine", "")
        until(lambda: len(files.look()) == min(len(new), MOST_STANDING), "all stand")
        files.answer(go=True)
        for process in new:
            out, err = process.communicate(timeout=30)
            assert (out, process.returncode, err.count(" stands at ")) == ("mine", 1, 1)
    finally:
        for process in new:
            process.kill()


@pytest.mark.parametrize("hook", ["lambda *how: print('mine')", "sys.excepthook"])
def test_a_program_s_own_hook_runs_once(files: StandingFiles, hook: str) -> None:
    code = f"import sys\nbefore = sys.excepthook\nsys.excepthook = {hook}\n1 / 0"
    with standing(files, "-c", code) as process:
        files.answer(go=True)
        out, err = process.communicate(timeout=30)
    assert (out == "mine\n") is (hook != "sys.excepthook")
    assert err.count("Traceback") == (hook == "sys.excepthook")
    assert process.returncode == 1


@pytest.mark.parametrize("code", NOT_KEPT)
def test_what_does_not_die_of_an_exception_does_not_stand(files: StandingFiles, code: str) -> None:
    process = start(files, "-c", code)
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (plain.returncode, plain.stdout)
    assert "stands" not in err and len(err.splitlines()) == len(plain.stderr.splitlines())


def test_it_goes_on_if_nobody_keeps_it(files: StandingFiles) -> None:
    files.answer(go=True)
    assert files.put(hook_files())  # of another run of the job
    assert not Path(files.directory, "answer.json").exists()
    files.answer(until_s=1.0)
    process = start(files, "-c", "1 / 0")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "stands" not in err


def test_a_killed_program_stands_no_more_and_any_file_is_read(files: StandingFiles) -> None:
    with standing(files, "-c", "1 / 0") as process:
        process.kill()
        process.wait()
        until(lambda: not files.look(), "it is not taken for one that stands")
    for number, text in enumerate(["[]", "{", '{"since_s": "x"}', '{"since_s": 1, "host": 3}', ""]):
        Path(files.directory, f"h.{number}.json").write_text(text)
    found = files.look()
    assert [one["host"] for one in found] == [3]


def test_it_is_found_and_asked_by_its_own_user_alone(files: StandingFiles) -> None:
    with standing(files, "-c", "1 / 0") as process:
        job = {"SLURM_JOB_ID": "1"}
        assert not is_standing(process.pid, {**os.environ, **job})  # of another job
        assert is_standing(process.pid, os.environ)
        assert not is_standing(os.getpid(), os.environ)
        ask(process.pid, {"agent": "/nowhere", "port": 1})
        files.answer(go=True)
        _, err = process.communicate(timeout=30)
    assert "the debugger can't be brought in" in err or "Traceback" in err


def test_what_is_sent_is_small() -> None:
    assert sum(map(len, hook_files().values())) < 14_000
    assert Settings(0.0, 1.0, 1.0, 1, "", "").hook == {}
    assert json.dumps(hook_files())
