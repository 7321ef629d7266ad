"""The words of pdb on a real debuggee of the installed debugpy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.debug.console.real_debuggee import RealDebuggee

PROGRAM = """\
import time


class Odd:
    def __repr__(self):
        raise ValueError("no repr")


def inner(number, *rest, key="k"):
    found = number + 1
    return found


def outer(values):
    odd, big = Odd(), "x" * 10**6
    breakpoint()
    first = inner(values[0], 8, 9)
    second = first + 1
    print("second", second)
    time.sleep(600)


outer([1, 2])
"""


@pytest.fixture(scope="module")
def debuggee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDebuggee]:
    program = tmp_path_factory.mktemp("program") / "train.py"
    program.write_text(PROGRAM)
    found = RealDebuggee(program)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("p values", "[1, 2]"),
        ("values[1] * 2", "4"),
        ("p [one + len(values) for one in values]", "[3, 4]"),
        ("p None", "None"),
        ("None", ""),
        ("p nothing", "*** NameError: name 'nothing' is not defined"),
        ("p 1/0", "*** ZeroDivisionError: division by zero"),
        ("p odd", "*** ValueError: no repr"),
        ("p exit()", "*** SystemExit: None"),
        ("exit()", "*** SystemExit: None"),
        ("import sys; sys.exit(3)", "*** SystemExit: 3"),
        ("p x =", "*** SyntaxError: invalid syntax"),
        ("made = values[0] + 40", ""),
        ("made", "41"),
        ("made += 1", ""),
        ("p made", "42"),
        ("c = 1", ""),
        ("c + 1", "2"),
        ("print('hi', made)", "hi 42"),
        ("for one in values: print(one)", "1\n2"),
        ("assert values == 3, 'unlike\\nit'", "*** AssertionError: unlike\nit"),
        ("p print('hi')", "hi\nNone"),
        ("[print(5), 1/0]", "5\n*** ZeroDivisionError: division by zero"),
        ("p (walrus := 7)", "7"),
        ("p walrus", "7"),
        ("whatis outer", "Function outer"),
        ("whatis values", "<class 'list'>"),
        ("pp {'a': 1}", "{'a': 1}"),
        ("p 'é\\u2028\\x1b'", "'é\\u2028\\x1b'"),
        ("p 'with \"both\\' quotes'", "'with \"both\\' quotes'"),
        ("p list(globals())[0]", "'__name__'"),
        ("a", "values = [1, 2]"),
        ("d", "*** Newest frame"),
    ],
)
def test_lines_in_the_stopped_frame(debuggee: RealDebuggee, line: str, shown: str) -> None:
    assert debuggee.type(line) == shown


def test_a_large_value_is_cut_in_the_rank(debuggee: RealDebuggee) -> None:
    cut = debuggee.type("p big").replace("\n", "")
    assert cut.startswith("'xxx")
    assert "(1,000,002 characters, checksum " in cut
    assert len(cut) < 2_100
    assert len(debuggee.type("p! big[:9000]").replace("\n", "")) == 9_002


def test_moves_and_frames(debuggee: RealDebuggee) -> None:
    assert debuggee.type("w").splitlines() == [
        "  train.py:23   <module>   outer([1, 2])",
        "> train.py:17   outer      first = inner(values[0], 8, 9)",
    ]
    assert debuggee.type("s") == "train.py:10 inner   found = number + 1"
    assert debuggee.type("a") == "number = 1\nkey = 'k'\nrest = (8, 9)"
    assert debuggee.type("u") == "> train.py:17 outer   first = inner(values[0], 8, 9)"
    assert debuggee.type("p values") == "[1, 2]"
    assert debuggee.type("d") == "> train.py:10 inner   found = number + 1"
    assert debuggee.type("n") == "train.py:11 inner   return found"
    assert debuggee.type("p found") == "2"
    assert debuggee.type("r") == "train.py:17 outer   first = inner(values[0], 8, 9)"
    assert debuggee.type("b 19") == "Breakpoint 1 at train.py:19"
    assert debuggee.type("c") == "runs on"
    assert debuggee.until_news() == ['rank 0 stopped: train.py:19 outer print("second", second)']
    assert debuggee.type("p second") == "3"


#: The main thread is in native code from the write on: the debugger stops it at a line's begin.
BACKGROUND = """\
import os
import threading
import time


def beat():
    while True:
        time.sleep(0.01)


def step(loss):
    ready, gate = os.open("{0}/ready", os.O_WRONLY), os.open("{0}/gate", os.O_RDONLY)
    os.write(ready, b"1"); os.read(gate, 1)
    found = loss
    found += 1
    time.sleep(600)


threading.Thread(target=beat, daemon=True, name="tqdm_monitor").start()
breakpoint()
step(0.5)
"""


def test_a_pause_is_about_the_main_thread_once_that_stands(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(BACKGROUND.format(tmp_path))
    for name in ("ready", "gate"):
        os.mkfifo(tmp_path / name)
    paused = RealDebuggee(program)
    try:
        assert paused.type("c") == "runs on"
        with open(tmp_path / "ready", "rb") as ready, open(tmp_path / "gate", "wb") as gate:
            ready.read(1)
            said = " ".join(paused.type("pause").split())
            assert "beat (thread tqdm_monitor; the main thread is in native code)" in said
            assert paused.type("w").startswith("thread tqdm_monitor; the main thread")
            gate.write(b"1")
        while "tqdm_monitor" in paused.type("w"):
            pass
        assert paused.type("p loss") == "0.5"
        assert paused.type("w").splitlines()[-1].split()[:3] == [">", "train.py:14", "step"]
        assert paused.type("n") == "train.py:15 step   found += 1"
    finally:
        paused.close()


RECURSION = """\
def count(n, tag):
    if n == 0:
        breakpoint()
        return 1
    return n * count(n - 1, tag + tag)


def fail(value, text):
    raise ValueError("bad")


count(2, "x")
fail(7, "y" * 900)
"""


def test_arguments_are_those_of_the_chosen_frame(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(RECURSION)
    stopped = RealDebuggee(program)
    try:
        assert stopped.type("a") == "n = 0\ntag = 'xxxx'"
        # All of a recursion are at one line.
        for found in ("n = 1\ntag = 'xx'", "n = 2\ntag = 'x'"):
            stopped.type("u")
            assert stopped.type("a") == found
        # The stack of an exception is unwound.
        stopped.type("catch uncaught")
        assert stopped.type("c") == "runs on"
        while stopped.console.moving:
            stopped.pass_one()
        said = stopped.type("a").replace("\n", "")
        assert said.startswith("value = 7text = 'yyy") and "(902 characters, checksum " in said
    finally:
        stopped.close()
