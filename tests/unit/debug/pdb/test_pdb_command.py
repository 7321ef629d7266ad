"""The command lines of `tk pdb`, and those of OpenPAI's paipdb."""

from __future__ import annotations

import shlex

import pytest

from tunnelkit.debug.pdb import pdb_command
from tunnelkit.debug.pdb.pdb_command import PYTHON_THERE, console_command, text_program
from tunnelkit.errors import UsageError

SEED = (
    "PYTHONPATH=:/pai_data/debug DEBUG_PORT_NAME=debug DEBUG_TIMEOUT=60 {} -m paipdb user.py a -b"
)


@pytest.mark.parametrize("python", ["python", "python3"])
def test_the_line_of_the_seed(python: str) -> None:
    words = shlex.split(SEED.format(python))
    program = text_program(words)
    assert (program.python, program.words) == ((python,), ("user.py", "a", "-b"))
    assert program.file == "user.py" and program.env["DEBUG_PORT_NAME"] == "debug"
    command = console_command(words)
    assert command.words[-3:] == ("user.py", "a", "-b") and command.interpreter == (python,)
    assert command.env["PYTHONPATH"] == ":/pai_data/debug" and command.debug
    assert [note.partition(" ")[0] for note in (*program.notes, *command.notes)] == ["paipdb"] * 2
    assert pdb_command.timeout_s(words, {"DEBUG_TIMEOUT": "7"}, None) == 60.0
    assert pdb_command.names_paipdb(words) and not pdb_command.names_paipdb(["python", "user.py"])


@pytest.mark.parametrize(
    ("line", "python", "words"),
    [
        ("train.py x", PYTHON_THERE, ("train.py", "x")),
        ("python -u -W ignore train.py x", ("python", "-u", "-Wignore"), ("train.py", "x")),
        ("python -m pkg.train -c", ("python",), ("-m", "pkg.train", "-c")),
        ("uv run python train.py", ("uv", "run", "python"), ("train.py",)),
        ("python -m debugpy --listen 5678 train.py", ("python",), ("train.py",)),
    ],
)
def test_programs(line: str, python: tuple[str, ...], words: tuple[str, ...]) -> None:
    program = text_program(shlex.split(line))
    assert (program.python, program.words) == (python, words)


def test_a_bare_file_is_run_by_the_python_that_is_there() -> None:
    command = console_command(["A=1", "train.py", "x"])
    assert command.interpreter == PYTHON_THERE == command.argv[:4]
    assert command.words[-2:] == ("train.py", "x") and command.env["A"] == "1"
    assert command.shown == "A=1 train.py x" and command.file == "train.py"
    assert console_command(["torchrun", "train.py"]).ranks


@pytest.mark.parametrize(
    "line", ["", "A=1", "make", "python", "python --version", "python -m paipdb", "uv run x.py"]
)
def test_lines_without_a_program(line: str) -> None:
    for parse in (text_program, console_command):
        with pytest.raises(UsageError):
            parse(shlex.split(line))


@pytest.mark.parametrize("line", ["torchrun x.py", "srun -n 2 python x.py", "python -c pass"])
def test_lines_that_the_port_does_not_serve(line: str) -> None:
    with pytest.raises(UsageError, match="--port"):
        text_program(shlex.split(line))


def test_how_long_to_wait() -> None:
    assert pdb_command.timeout_s([], {}, None) == 600.0
    assert pdb_command.timeout_s([], {"DEBUG_TIMEOUT": "7"}, None) == 7.0
    assert pdb_command.timeout_s(["DEBUG_TIMEOUT=8"], {"DEBUG_TIMEOUT": "x"}, 9.0) == 9.0
    for bad in ("soon", "0", "-1", "nan", "inf"):
        with pytest.raises(UsageError):
            pdb_command.timeout_s([f"DEBUG_TIMEOUT={bad}"], {}, None)
