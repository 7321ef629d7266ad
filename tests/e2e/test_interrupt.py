"""`tk interrupt`: pauses what an editor debugs, as if the editor had asked."""

from __future__ import annotations

import pytest

from tests.support.tkrig import Project
from tunnelkit.demo.dap_client import DapClient

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
    assert "paused: rank 1" in done.out
    thread, _ = await second.stopped()
    assert not [event for event in first.events if event["event"] == "stopped"]
    assert "no rank 7" in (await project.tk("interrupt", "7", code=10)).err
    project.remote("enough").touch()
    await second.request("continue", threadId=thread)
    await terminal.line(r"run 1 · ended: exit code 0")
