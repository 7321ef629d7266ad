"""The command forms that people have in their scripts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.debug.command import PORT_MARK, START, understand
from tunnelkit.errors import UsageError

DIALS_OUT = ["-c", START, "--connect", f"127.0.0.1:{PORT_MARK}", "--wait-for-client"]


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("python -m debugpy --wait-for-client 2.py", "2.py"),
        ("python -m debugpy --listen 40056 --wait-for-client 2.py a -b", "2.py a -b"),
        ("python -m debugpy --listen 0.0.0.0:40056 2.py", "2.py"),
        ("python -m debugpy --connect 1.2.3.4:5678 -m pkg.mod --x 1", "-m pkg.mod --x 1"),
        ("python -m debugpy --configure-subProcess false -c 'print(1)'",
         "--configure-subProcess false -c 'print(1)'"),
        ("python -m ptvsd --host 0.0.0.0 --port 40056 --wait 2.py", "2.py"),
        ("python -m ptvsd --port 40056 -m pkg", "-m pkg"),
        ("python train.py --epochs 1", "train.py --epochs 1"),
        ("python -m pkg.train", "-m pkg.train"),
    ],
)  # fmt: skip
def test_every_form_dials_out(line: str, target: str) -> None:
    command = understand(shlex.split(line))
    assert command.debug
    assert list(command.argv) == ["python", *DIALS_OUT, *shlex.split(target)]
    assert command.shown == line


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("python -m debugpy --listen 40056 2.py", 40056),
        ("python -m debugpy --listen 0.0.0.0:5678 2.py", 5678),
        ("python -m ptvsd --host 0.0.0.0 --port 40057 --wait 2.py", 40057),
        ("python -m debugpy --wait-for-client 2.py", None),
    ],
)
def test_the_named_port_is_the_editors(line: str, port: int | None) -> None:
    assert understand(shlex.split(line)).port == port


def test_what_is_changed_is_said() -> None:
    (note,) = understand(["python", "-m", "ptvsd", "--port", "5678", "x.py"]).notes
    assert "debugpy" in note
    (note,) = understand(["python", "-m", "debugpy", "--listen", "0.0.0.0:1", "x.py"]).notes
    assert "0.0.0.0:1" in note


@pytest.mark.parametrize("python", ["python3.11", "/opt/conda/bin/python", "python3"])
def test_interpreters_and_their_switches_stay(python: str) -> None:
    command = understand([python, "-W", "error", "-u", "x.py"])
    assert list(command.argv) == [python, "-W", "error", "-u", *DIALS_OUT, "x.py"]


@pytest.mark.parametrize("line", ["nvidia-smi", "bash run.sh", "python --version", "python"])
def test_other_commands_run_as_they_are(line: str) -> None:
    command = understand(line.split())
    assert list(command.argv) == line.split()
    assert not command.debug
    # A debugpy inside of a wrapper still dials out.
    assert PORT_MARK in command.env["DEBUGPY_EXTRA_ARGV"]


def test_a_wrapper_that_names_debugpy_is_debugged() -> None:
    assert understand(["srun", "-n1", "python", "-m", "debugpy", "--wait-for-client", "x.py"]).debug


@pytest.mark.parametrize(
    "line",
    [
        "",
        "python -m debugpy",
        "python -m debugpy --listen",
        "python -m debugpy --listen nowhere x.py",
        "python -m debugpy --wait-for-client -m",
        "python -m ptvsd --port 99999 x.py",
        "python -m ptvsd --nosuch x.py",
    ],
)
def test_malformed_commands_are_refused(line: str) -> None:
    with pytest.raises(UsageError):
        understand(line.split())


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6))
def test_arguments_of_the_program_are_never_touched(words: list[str]) -> None:
    command = understand(["python", "x.py", *words])
    assert list(command.argv)[-len(words) :] == words


_TELL = "import sys; print(sys.path, sys.argv, __name__, sorted(globals()), __spec__ is None)"


@pytest.mark.parametrize(
    ("switches", "target"),
    [
        ([], ["tell.py", "a"]),
        (["-P"], ["tell.py", "a"]),
        (["-I"], ["tell.py", "a"]),
        ([], ["-m", "tell", "--b"]),
        ([], ["-c", _TELL, "x"]),
        (["-I"], ["-c", _TELL, "x"]),
    ],
)
def test_a_program_finds_itself_as_under_debugpys_own_start(
    tmp_path: Path, switches: list[str], target: list[str]
) -> None:
    """Search path, arguments and names in `__main__` are those of `python -m debugpy`."""
    (tmp_path / "tell.py").write_text(_TELL)

    def told(*start: str) -> str:
        done = subprocess.run(
            [sys.executable, *switches, *start, "--connect", "127.0.0.1:1", *target],
            cwd=tmp_path,
            # debugpy then takes itself for started and does not connect.
            env={**os.environ, "DEBUGPY_RUNNING": "true"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # debugpy leaves its `cli` behind, too.
    assert told("-c", START) == told("-m", "debugpy").replace("'cli', ", "")
