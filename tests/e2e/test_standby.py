"""The next run stands by while one runs: F5 after F5, edits between, ends of all kinds."""

from __future__ import annotations

import asyncio
import os
import signal
import venv
from collections.abc import AsyncIterator
from pathlib import Path

import debugpy
import pytest

from tests.support import processes
from tests.support.tkrig import PATIENCE_S, PROGRAM, Project, eventually, line_of

STOP = line_of(PROGRAM, "total += step")


@pytest.fixture
async def up(project: Project) -> AsyncIterator[Project]:
    """A project with a session on node1."""
    await project.up("node1", "--cpus", "2")
    yield project


async def standing_by(project: Project) -> int:
    """The pid of the run that stands by, once there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while not (standby := (await project.status())["loops"][0]["standby"]):
            await asyncio.sleep(0.02)
    return int(standby["pid"])


async def test_each_f5_runs_what_was_saved_last_and_is_the_one_that_stood_by(up: Project) -> None:
    terminal = await up.loop("python", "2.py")
    waiting = 0
    for word in ("one", "two", "three"):
        source = PROGRAM.replace("first", word)
        up.write("2.py", source)
        # After the next one was made, and just before the last one has ended.
        await up.ready()
        editor, thread, frame = await up.f5_to_stop(STOP)
        assert await editor.evaluate("WORD", frame) == f"'{word}'"
        pid = int(await editor.evaluate("os.getpid()", frame))
        assert waiting in (0, pid)
        waiting = await standing_by(up)
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread)
        await terminal.line(rf"^step 2 {word}$")
        await terminal.line(r"run \d+ · ended: exit code 0")
    assert not any("stood by" in line or "standby" in line for line in terminal.lines)


async def test_the_next_f5_has_what_pip_has_installed_meanwhile(up: Project) -> None:
    """`pip install -e` names the place in a .pth file, which Python reads when it starts."""
    venv.create(up.base / "env", with_pip=False)
    python = up.base / "env/bin/python"
    (packages,) = up.base.glob("env/lib/python*/site-packages")
    (packages / "debugger.pth").write_text(str(Path(debugpy.__file__).parents[1]))
    for run in (1, 2):
        (up.base / f"src{run}").mkdir()
        (up.base / f"src{run}" / "mine.py").write_text(f"word = 'installed {run}'\n")
    up.write("2.py", PROGRAM.replace('"first"', "__import__('mine').word"))
    terminal = await up.loop(str(python), "2.py")
    for run in (1, 2):  # which was started, then one that was forked and stood by
        editable = packages / f"__editable__.mine{run}.pth"
        editable.write_text(str(up.base / f"src{run}"))
        editor, thread, frame = await up.f5_to_stop(STOP)
        assert await editor.evaluate("WORD", frame) == f"'installed {run}'"
        await standing_by(up)
        editable.unlink()
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread)
        await terminal.line(rf"run {run} · ended: exit code 0")


async def test_status_tells_what_it_costs_and_no_standby_saves_that(up: Project) -> None:
    terminal = await up.loop("python", "2.py")
    editor, *_ = await up.f5_to_stop(STOP)
    pid = await standing_by(up)
    told = (await up.tk("status")).out.splitlines()
    line = next(line for line in told if line.startswith("standby"))
    assert line.startswith(f"standby  the next run (pid {pid}): ") and "its share of that" in line
    await editor.close()
    assert await terminal.quit() == 0
    assert not processes.is_alive(pid)

    await up.loop("--no-standby", "python", "2.py")
    editor, _, frame = await up.f5_to_stop(STOP)
    (running,) = [one for one in up.cluster_processes() if "2.py" in one.argv]
    assert str(running.pid) == await editor.evaluate("os.getpid()", frame)
    assert "standby" not in (await up.tk("status")).out
    assert (await up.status())["loops"][0]["standby"] is None


async def test_one_that_is_killed_while_it_stands_by_harms_nothing(up: Project) -> None:
    terminal = await up.loop("python", "2.py")
    editor, thread, frame = await up.f5_to_stop(STOP)
    os.kill(await standing_by(up), signal.SIGKILL)
    await terminal.line("run 2, which stood by, ended: signal SIGKILL")
    # The run in front doesn't notice, neither here nor in what is told of it.
    assert await editor.evaluate("step", frame) == "0"
    loop = (await up.status())["loops"][0]
    assert (loop["state"], loop["generation"], loop["standby"]) == ("attached", 1, None)
    assert loop["editor"] is not None and loop["last_end"] == {}
    await editor.request("next", threadId=thread)
    await editor.stopped()
    # Stop ends it, and the next F5 is served.
    front = int(loop["pid"])
    await editor.request("disconnect")
    await editor.drop()
    editor, _, frame = await up.f5_to_stop(STOP)
    assert not processes.is_alive(front)
    assert await editor.evaluate("step", frame) == "0"


async def test_ctrl_c_while_one_stands_by_arms_that_one(up: Project) -> None:
    terminal = await up.loop("python", "2.py")
    await up.f5_to_stop(STOP)
    pid = await standing_by(up)
    terminal.interrupt()
    await terminal.line(r"run 1 · ended: .*\(restarted by you\)")
    assert int((await terminal.line(r"starting \(pid (\d+)"))[1]) == pid
    editor, _, frame = await up.f5_to_stop(STOP)
    assert await editor.evaluate("os.getpid()", frame) == str(pid)


async def test_a_killed_session_finds_both_again(up: Project) -> None:
    terminal = await up.loop("python", "2.py")
    editor, _, frame = await up.f5_to_stop(STOP)
    front = await editor.evaluate("os.getpid()", frame)
    pid = await standing_by(up)
    await editor.drop()
    await eventually(lambda: not processes.is_alive(int(front)), "the end of the first")
    editor, *_ = await up.f5_to_stop(STOP)
    second = await standing_by(up)
    daemon = (await up.status())["pid"]
    os.kill(daemon, signal.SIGKILL)
    await eventually(lambda: not processes.is_alive(daemon), "the session's end")
    await editor.drop()
    await up.up()
    await terminal.line("the session is back")
    # The same stop of the same run.
    editor, thread, frame = await up.f5_to_stop(STOP)
    assert await editor.evaluate("os.getpid()", frame) == str(pid)
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    editor, _, frame = await up.f5_to_stop(STOP)
    assert await editor.evaluate("os.getpid()", frame) == str(second)
