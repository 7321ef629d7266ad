"""The allocation ends, or its node dies, under a debug session: F5 fails before it attaches."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.editors import said
from tests.support.tkrig import PATIENCE_S, PROGRAM, Project, line_of
from tunnelkit.errors import DebugError, NoSessionError

STOP = line_of(PROGRAM, "total += step")


async def _scancel(project: Project, job: str) -> None:
    await project.do_on_login("scancel", job)


async def _node_down(project: Project, job: str) -> None:
    await project.do_on_login("scontrol", "update", "nodename=node2", "state=down", "reason=test")


@pytest.fixture
async def node2(project: Project) -> AsyncIterator[Project]:
    """A project whose node is whole again afterwards."""
    yield project
    await project.do_on_login("scontrol", "update", "nodename=node2", "state=resume", code=None)


async def _crash(project: Project, job: str) -> None:
    """Without a word, as when the power fails."""
    processes.kill(project.cluster_processes())
    # A node's own directories go with it; here they are this machine's.
    for left in Path(f"/tmp/tunnelkit-{os.getuid()}").glob(f"tk-{project.dir.name}-*.sock"):
        left.unlink()


@pytest.mark.parametrize(
    ("fault", "told", "word"),
    [
        (_scancel, "killed by SIGTERM", "CANCELLED|COMPLETING"),
        (_node_down, "killed by SIGTERM", "NODE_FAIL"),
        (_crash, "the allocation is over", "FAILED"),
    ],
)
async def test_the_end_of_the_allocation_is_told_to_editor_and_f5(
    node2: Project, fault: Callable[[Project, str], Awaitable[None]], told: str, word: str
) -> None:
    project = node2
    status = await project.up("node2", "--cpus", "2")
    terminal = await project.loop("python", "2.py")
    running = await project.terminal("run", "sh", "-c", "echo up; exec sleep 600")
    await running.line("^up$")
    editor, _, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("step", frame) == "0"
    started = time.monotonic()
    await fault(project, status["job"]["id"])

    # The editor is not left at a yellow line that nothing stands behind.
    await editor.wait_event("terminated", timeout_s=PATIENCE_S)
    assert time.monotonic() - started < 60
    assert told in said(editor), said(editor)
    await terminal.ended()
    assert await running.ended() != 0
    later = await project.tk("run", "true", code=int(NoSessionError.exit_code))
    assert "the allocation is over" in later.err

    # F5 begins with this; nonzero and one line, so the editor does not attach at all.
    ready = await project.tk("ready", "--sync", code=int(NoSessionError.exit_code))
    assert ready.out == "" and ready.err.count("\n") == 1
    assert re.search(rf"allocation is over: job \d+: ({word})", ready.err), ready.err
    # And one that attaches without asking is told, not refused or kept waiting.
    late = await project.editor()
    with pytest.raises(DebugError, match="loop"):
        await late.attach({}, timeout_s=20)
    await _nothing_is_proven(project)


async def _nothing_is_proven(project: Project) -> None:
    """What is saved now goes to the login host; nobody may take that for a proof."""
    project.write("late.py", "x = 1\n")
    plain = await project.tk("sync")
    assert plain.out.startswith("on the login host only"), plain
    assert "proven on no compute node: the allocation is over: job" in plain.err, plain
    assert project.remote("late.py").read_text() == "x = 1\n"
    waited = await project.tk("sync", "--wait", code=int(NoSessionError.exit_code))
    assert waited.out == "" and waited.err.count("\n") == 1, waited
    assert "no compute node has read the files back" in waited.err
    assert "the allocation is over" in waited.err
    report = (await project.tk("sync", "--json")).json
    assert report["proven"] == 0 and report["unproven"].startswith("the allocation is over")


async def test_a_debuggee_that_waits_for_an_editor_ends_with_its_killed_agent(
    project: Project,
) -> None:
    """Nobody could bring it one any more, and it holds what it has imported."""
    status = await project.up("node1", "--cpus", "1")
    terminal = await project.loop("python", "2.py")
    started = re.search(r"starting \(pid (\d+)", terminal.text)
    assert started is not None, terminal.text
    os.kill(status["agent"]["pid"], signal.SIGKILL)
    await terminal.ended()
    waiting = int(started[1])
    await asyncio.to_thread(
        processes.until, lambda: not processes.is_alive(waiting), "the debuggee ends"
    )
    project.forget_killed_agents()
