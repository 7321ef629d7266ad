"""`tk ranks --native`: stacks of ranks that do not answer or have no debugger, by py-spy."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_ranks_without_debugger import started
from tests.e2e.test_where_ranks_are import SPREAD, debugged, looked, until
from tests.support.tkrig import PATIENCE_S, Project, eventually, line_of
from tunnelkit.errors import MissingProgram
from tunnelkit.session.debugging.py_spy import find_binary

pytestmark = pytest.mark.slow

#: Rank 1 sleeps in C with the GIL, rank 3 computes; the others wait in Python.
PROGRAM = """\
    import ctypes
    import os
    import time

    def spin():
        while not os.path.exists("enough"):
            pass

    def native():
        # It keeps the GIL, as a library may.
        ctypes.PyDLL(None).usleep(ctypes.c_uint(600_000_000))

    def wait():
        while not os.path.exists("enough"):
            time.sleep(0.1)

    rank = int(os.environ["SLURM_PROCID"])
    open(f"begun{rank}", "w").close()
    {1: native, 3: spin}.get(rank, wait)()
    """


@pytest.fixture(scope="module", autouse=True)
def has_py_spy() -> Iterator[None]:
    try:
        find_binary()
    except MissingProgram as error:
        pytest.skip(error.one_line())
    yield


def kept(project: Project) -> list[Path]:
    """The binaries on the cluster; the lab's disk is this machine's."""
    return sorted(project.lab.home.glob(".cache/tunnelkit/native/*"))


async def test_ranks_without_a_debugger_have_stacks_on_both_nodes(project: Project) -> None:
    project.write("spread.py", PROGRAM)
    await project.up("--nodes", "2", "--cpus", "2")
    await started(project, 4, "srun", "-n", "4", "python")
    answer = await looked(project, "--native")
    assert answer["notes"] == []
    ranks = {one["rank"]: one for one in answer["ranks"]}
    native = line_of(PROGRAM, "ctypes.PyDLL")
    frames = [(one["function"], one["line"]) for one in ranks[1]["frames"]]
    assert frames[1] == ("native", native) and ("usleep", 0) in frames[2:]
    assert ranks[1]["process"]["holds_gil"] is True
    activities = {rank: one["activity"] for one in answer["classes"] for rank in one["ranks"]}
    assert activities[1] == "waits" and activities[3] in ("spins", "moves")
    places = {
        rank: (one["place"][-1]["function"], [frame["function"] for frame in one["place"]])
        for one in answer["classes"]
        for rank in one["ranks"]
    }
    assert "wait" in places[0][1] and places[0] == places[2] and "spin" in places[3][1]
    text = (await project.tk("ranks", "--native", "1-2")).out
    assert re.search(rf"^\w +1 +1 +spread.py:{native} native > usleep", text, re.M)
    assert "the stacks of ranks 1-2 are py-spy's" in text and "tk ranks --native" not in text
    # It was sent once, to a directory that nobody else can read.
    [binary] = kept(project)
    assert stat.S_IMODE(binary.parent.stat().st_mode) == 0o700
    inode = binary.stat().st_ino
    # One that was changed there is not run: it is sent again.
    binary.write_text("#!/bin/sh\necho '[]' > ~/owned\n")
    assert (await looked(project, "--native", "0"))["notes"] == []
    assert not (project.lab.home / "owned").exists()
    [again] = kept(project)
    assert again.name == binary.name and again.stat().st_ino != inode
    project.remote("enough").touch()


async def test_the_silent_rank_of_a_loop_is_seen_from_outside(project: Project) -> None:
    project.write("spread.py", SPREAD)
    await project.up("--nodes", "2", "--cpus", "2")
    terminal = await project.loop("srun", "-n", "4", "python", "spread.py")
    await debugged(project, 4, "spread.py", line_of(SPREAD, 'print("never")'))
    begun = [project.remote() / f"begun{rank}" for rank in range(4)]
    await eventually(lambda: all(one.exists() for one in begun), "all have begun", PATIENCE_S)
    await until(project, lambda one: one["ranks"][2]["state"] == "silent")
    assert "tk ranks --native" in (await project.tk("ranks")).out
    pid = (await looked(project))["ranks"][3]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        answer = await looked(project, "--native")
    finally:
        os.kill(pid, signal.SIGCONT)
    ranks = {one["rank"]: one for one in answer["ranks"]}
    assert ranks[2]["state"] == "silent" and ranks[2]["process"]["holds_gil"]
    functions = [one["function"] for one in ranks[2]["frames"]]
    assert "native" in functions and "usleep" in functions
    # A stopped one, too; those that answer keep the stack that they gave.
    assert ranks[3]["process"]["letter"] == "T"
    assert "wait" in [one["function"] for one in ranks[3]["frames"]], answer["notes"]
    assert [one["function"] for one in ranks[0]["frames"]][-1] == "wait"
    text = (await project.tk("ranks", "--native")).out
    assert "in native code that holds the GIL" in re.sub(r"\s+", " ", text)
    await terminal.quit()


async def test_without_py_spy_the_package_is_named(project: Project) -> None:
    await project.up()
    script = project.base / "none"
    project.env["TK_PY_SPY"] = str(script)
    terminal = await project.terminal("run", "python", "-c", "print('is up'); input()")
    await terminal.line("is up")
    done = await project.tk("ranks", "--native", code=11)
    assert "can't be read" in done.err and "pip install 'tunnelkit[native]'" in done.err
    script.write_text("#!/bin/sh\n")
    done = await project.tk("ranks", "--native", code=11)
    assert "no program for Linux" in done.err and done.err.count("\n") == 1
    # Of another machine: it is not sent, and the line says why.
    other = b"\x7fELF\x02\x01" + bytes(12) + b"\xf3\x00" + bytes(100)
    script.write_bytes(other)
    text = re.sub(r"\s+", " ", (await project.tk("ranks", "--native")).out)
    assert "py-spy here is for machine 243" in text
    assert not [one for one in kept(project) if one.read_bytes() == other]
