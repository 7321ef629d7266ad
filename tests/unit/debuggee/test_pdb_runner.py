"""The pdb of `tk pdb --port`, under every Python that this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tunnelkit.debuggee.evaluated
from tunnelkit.session.handlers.pdb_text import START, VARIABLE

RUNNER = Path(tunnelkit.debuggee.evaluated.__path__[0], "pdb_runner.py").read_text("utf-8")
PYTHONS = [
    sys.executable,
    *sorted(
        str(path)
        for path in Path.home().glob(".pyenv/versions/3.*/bin/python")
        if int(path.parts[-3].split(".")[1]) >= 8
    ),
]
PROGRAM = """\
import sys, threading
print("begun", sys.argv, __name__)
name = input("name? ")
def twice(number):
    doubled = number * 2
    breakpoint()
    return doubled
print(twice(4), name)
def work():
    mine = 5
    __import__("pdb").set_trace()
    print("thread", mine)
thread = threading.Thread(target=work); thread.start(); thread.join()
import paipdb
paipdb.settrace(port=5678)
if "fail" in sys.argv:
    raise ValueError("bad")
if "exit" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture(params=PYTHONS, ids=lambda path: "/".join(Path(path).parts[-3:]))
def python(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    (tmp_path / "prog.py").write_text(PROGRAM)
    return str(request.param), tmp_path


def run(python: tuple[str, Path], *words: str, typed: str) -> tuple[int, str, str]:
    """Exit code, the client's text and the log of a program whose client types this."""
    done = subprocess.run(
        [python[0], "-c", START, *words],
        input=typed.encode(),
        capture_output=True,
        cwd=python[1],
        env={**os.environ, VARIABLE: RUNNER, "LC_ALL": "C"},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_breakpoints_threads_and_an_exception(python: tuple[str, Path]) -> None:
    typed = "p 'é'\nn\nc\nZoé\np doubled\nup\nc\np mine\nc\nc\np name\nc\nq\n"
    code, text, log = run(python, "prog.py", "fail", typed=typed)
    file = python[1] / "prog.py"
    first = f"> {file}(1)<module>()\n-> import sys, threading\n(Pdb) "
    assert code == 0 and text.startswith(first + f"'é'\n(Pdb) > {file}(2)<module>()\n")
    rest = iter(text[len(first) :].splitlines())
    for line in (
        "(Pdb) begun ['prog.py', 'fail'] __main__",
        f"name? > {file}(7)twice()",
        "-> return doubled",
        "(Pdb) 8",
        f"(Pdb) > {file}(8)<module>()",
        "(Pdb) 8 Zoé",
        f"> {file}(12)work()",
        "(Pdb) 5",
        "(Pdb) thread 5",
        f"> {file}(16)<module>()",
        "(Pdb) Uncaught exception. Entering post mortem debugging",
        "Running 'cont' or 'step' will restart the program",
        f"> {file}(17)<module>()",
        "(Pdb) 'Zoé'",
        "(Pdb) Post mortem debugger finished. The prog.py will be restarted",
        f"> {file}(1)<module>()",
        "(Pdb) ",
    ):
        assert line in rest, text
    assert log.startswith(f'Traceback (most recent call last):\n  File "{file}", line 17, in <m')
    assert log.endswith("ValueError: bad\n")


def test_exits_and_restarts(python: tuple[str, Path]) -> None:
    end = "c\nMe\nc\nc\nc\n"
    code, text, log = run(python, "prog.py", "exit", typed=end + f"run more\n{end}")
    assert (code, log) == (0, "")
    for line in (
        "The program exited via sys.exit(). Exit status: 3\n",
        "Restarting prog.py with arguments:\n\tmore\n",
        "begun ['prog.py', 'more'] __main__\n",
        "The program finished and will be restarted\n",
    ):
        assert line in text
    assert text.count("(1)<module>()\n-> import sys") == 4


def test_a_module_and_its_last_line(python: tuple[str, Path]) -> None:
    package = python[1] / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("from . import other; print(__name__, __package__)\n")
    (package / "other.py").touch()
    code, text, _ = run(python, "-m", "pkg", typed="n\nn\nq\n")
    assert code == 0 and "__main__ pkg\n--Return--\n" in text
    assert "The program finished and will be restarted\n" in text


@pytest.mark.parametrize(
    ("source", "why"),
    [(None, "FileNotFoundError"), ("x = (\n", "SyntaxError"), ("\0", "ValueError|SyntaxError")],
)
def test_a_program_that_cannot_be_read(
    python: tuple[str, Path], source: str | None, why: str
) -> None:
    if source is not None:
        (python[1] / "bad.py").write_text(source)
    code, text, log = run(python, "bad.py", typed="")
    assert code == 1
    assert any(text.startswith(one) and one in log for one in why.split("|")), (text, log)
    assert run(python, "-m", "no_such_module", typed="")[0] == 1
