"""`tk interrupt`: pauses what an editor debugs, as if the editor had asked."""

from __future__ import annotations

import re

import pytest

from tests.e2e.test_where_ranks_are import until
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project
from tunnelkit.demo.dap_client import DapClient

pytestmark = pytest.mark.slow

SPIN = """\
    import os
    import time
    print("spins", flush=True)
    turns = 0
    while not os.path.exists("enough"):
        turns += 1
        time.sleep(0.01)
    print("done", turns > 0, flush=True)
    """
RANKS = """\
    import os
    import time
    rank = int(os.environ["SLURM_PROCID"])
    print(f"rank {rank} spins", flush=True)
    while not os.path.exists("enough"):
        time.sleep(0.01)
    """
NATIVE = """\
    import time
    print("sleeps", flush=True)
    time.sleep(60)
    """


BACKGROUND = """\
    import threading
    import time

    def beat():
        while True:
            time.sleep(0.01)

    threading.Thread(target=beat, daemon=True).start()
    print("sleeps", flush=True)
    time.sleep(60)
    """


@pytest.fixture
async def up(project: Project) -> Project:
    await project.up("node1", "--cpus", "4")
    return project


async def test_the_editor_shows_the_program_stopped_and_it_goes_on(up: Project) -> None:
    up.write("spin.py", SPIN)
    terminal = await up.loop("python", "spin.py")
    editor = await up.f5(file="spin.py")
    await terminal.line("spins")
    done = await up.tk("interrupt", "--json")
    assert done.json["processes"][0]["paused"] is True
    event = await editor.wait_event("stopped")
    assert event["reason"] == "pause"
    thread = int(event["threadId"])
    stack = await editor.request("stackTrace", threadId=thread, startFrame=0, levels=20)
    frame = next(one for one in stack["stackFrames"] if one["name"] == "<module>")
    assert int(await editor.evaluate("turns", frame)) > 0
    assert str(done.json["processes"][0]["pid"]) == await editor.evaluate("os.getpid()", frame)
    # It stands already: nothing more happens.
    assert "paused: the program" in (await up.tk("interrupt")).out
    up.remote("enough").touch()
    await editor.finish(thread)
    await terminal.line("done True")


async def test_without_an_editor_it_says_what_to_do(up: Project) -> None:
    failed = await up.tk("interrupt", code=10)
    assert "no debug loop is running" in failed.err
    await up.loop("python", "2.py")
    failed = await up.tk("interrupt", code=10)
    assert "no editor debugs the program" in failed.err and "tk attach" in failed.err
    assert len(failed.err.strip().splitlines()) == 1
    assert "no ranks" in (await up.tk("interrupt", "1", code=10)).err


async def test_a_program_in_native_code_is_told_as_such(up: Project) -> None:
    up.write("native.py", NATIVE)
    terminal = await up.loop("python", "native.py")
    editor = await up.f5(file="native.py")
    await terminal.line("sleeps")
    failed = await up.tk("interrupt", code=12)
    assert "native code" in failed.err and "py-spy dump --pid" in failed.err
    told = await editor.wait_event("output", lambda body: "native code" in body["output"])
    assert "py-spy" in told["output"]


async def test_a_program_is_not_paused_while_only_another_thread_stands(up: Project) -> None:
    """A progress bar's, or a data loader's: the debugger tells of the first that stops."""
    up.write("native.py", BACKGROUND)
    terminal = await up.loop("python", "native.py")
    editor = await up.f5(file="native.py")
    await terminal.line("sleeps")
    failed = await up.tk("interrupt", code=12)
    assert "native code" in failed.err
    await editor.stopped()


async def test_one_rank_is_paused_and_the_others_run_on(project: Project) -> None:
    project.write("ranks.py", RANKS)
    await project.up("--nodes", "2", "--cpus", "4")
    terminal = await project.loop("srun", "-n2", "python", "ranks.py")
    first = await project.f5(file="ranks.py")
    told = await first.wait_event("debugpyAttach", timeout_s=60)
    second: DapClient = await project.editor(int(told["connect"]["port"]) or None)
    await second.attach({}, path_mappings=project.path_mappings, tkRank=told["tkRank"])
    for _ in range(2):
        await terminal.line(r"rank \d spins")
    done = await project.tk("interrupt", "1")
    assert re.match(r"1 paused at ranks.py:\d+", done.out)
    thread, _ = await second.stopped()
    assert not [event for event in first.events if event["event"] == "stopped"]
    assert "no rank 7" in (await project.tk("interrupt", "7", code=2)).err
    assert "node2" in (await project.tk("interrupt", "node=node9", code=2)).err
    project.remote("enough").touch()
    await second.request("continue", threadId=thread)
    await terminal.line(r"run 1 · ended: exit code 0")


SPREAD = """\
    import ctypes
    import os
    import time
    rank = int(os.environ["SLURM_PROCID"])
    print(f"rank {rank} spins", flush=True)
    if rank == 3:
        # It keeps the GIL, as a library may.
        ctypes.PyDLL(None).usleep(ctypes.c_uint(600_000_000))
    while not os.path.exists("enough"):
        time.sleep(0.01)
    """


async def test_a_selection_is_paused_that_only_a_console_debugs(project: Project) -> None:
    project.write("spread.py", SPREAD)
    await project.up("--nodes", "2", "--cpus", "2")
    terminal = await project.loop("srun", "-n", "4", "python", "spread.py")
    await until(project, lambda one: len(one["ranks"]) == 4)
    failed = await project.tk("interrupt", "node=1", code=10)
    assert "no editor debugs any of the 2 ranks" in failed.err and "console" in failed.err
    async with on_a_terminal(project, "console") as screen:
        await screen.shows(r"\(tk 0-3\)")
        assert "wait for a debugger" in (await project.tk("interrupt", "0-1", code=10)).err
        screen.type("c\r")
        for _ in range(4):
            await terminal.line(r"rank \d spins")
        done = await project.tk("interrupt", "0-1", "--json")
        paused = {one["rank"]: one for one in done.json["processes"]}
        assert sorted(paused) == [0, 1] and all(one["paused"] for one in paused.values())
        assert all(one["where"].startswith("spread.py:") for one in paused.values()), paused
        # Those that stand stay so; the one that is stuck is said to be.
        done = await project.tk("interrupt", "node=1", code=12)
        assert re.search(r"^2 paused at spread.py:\d+", done.out, re.M)
        assert "3 is in native code and stops once it is back in Python" in done.err
        done = await project.tk("interrupt", "stopped")
        assert re.match(r"0-2 paused at spread.py:\d+", done.out)
        screen.type("q\r")
        assert await screen.process.wait() == 0
    # Without a client a stop would be seen by nobody.
    failed = await project.tk("interrupt", "0", code=10)
    assert "no editor debugs rank 0" in failed.err
    await terminal.quit()
