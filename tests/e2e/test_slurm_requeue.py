"""Preempted, put back into the queue, run again elsewhere, or over: on the lab's real Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support import processes
from tests.support.editors import said
from tests.support.ports import free_port
from tests.support.tkrig import PATIENCE_S, PROGRAM, Project, Terminal, line_of

STOP = line_of(PROGRAM, "total += step")
_SERVE = """\
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True:
    peer, _ = listener.accept()
    peer.sendall(os.environ["SLURMD_NODENAME"].encode())
    peer.close()
"""


async def at_login(project: Project, command: str) -> str:
    return (await project.do_on_login("sh", "-c", command)).strip()


@asynccontextmanager
async def somebody_wants(project: Project, node: str) -> AsyncIterator[None]:
    """A job of a better partition takes all of a node."""
    words = f"-p gpu --exclusive -w {node} -t 10 -o /dev/null --wrap 'sleep 600'"
    job = await at_login(project, f"sbatch --parsable {words}")
    try:
        yield
    finally:
        await at_login(project, f"scancel {job}")


async def until(project: Project, state: str, detail: str = "") -> dict[str, object]:
    """Wait for a state of the session; its status."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await project.status()
            if status["state"] == state and detail in status["detail"]:
                return status
            await asyncio.sleep(0.2)


async def serving(project: Project, port: int) -> Terminal:
    server = await project.terminal("run", "python", "serve.py", str(port))
    await server.line("^up$")
    return server


async def answer(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("counted_logins")
async def test_preempted_it_waits_and_goes_on_where_it_runs_again(project: Project) -> None:
    project.write("serve.py", _SERVE)
    status = await project.up("--partition", "scavenge", "--requeue", "--cpus", "2", "--time", "60")
    job = status["job"]["id"]
    assert status["node"] == "node1"
    here, there = free_port(), free_port()
    server = await serving(project, there)
    await project.tk("forward", f"{here}:{there}")
    assert await answer(here) == b"node1"
    terminal = await project.loop("python", "2.py")
    editor, _, _ = await project.f5_to_stop(STOP)

    async with somebody_wants(project, "node1"):
        # Editor and terminal are told; nothing is left hanging.
        await editor.wait_event("terminated", timeout_s=PATIENCE_S)
        await terminal.line(rf"the loop has ended: job {job} went back into the queue")
        assert await terminal.ended() == 8
        await server.ended()
        pending = await until(project, "pending")
        assert pending["job"]["requeues"] == 1  # type: ignore[index]
        assert pending["loops"] == []

        # What is edited meanwhile is there, as are the same local ports.
        project.write("2.py", PROGRAM.replace('"first"', '"second"'))
        again = await until(project, "ready")
        assert (again["node"], again["job"]["id"]) == ("node2", job)  # type: ignore[index]
        server = await serving(project, there)
        assert await answer(here) == b"node2"
        await project.loop("python", "2.py")
        await project.ready()
        editor, _, frame = await project.f5_to_stop(STOP)
        assert await editor.evaluate("WORD", frame) == "'second'"
        assert await editor.evaluate("os.environ['SLURMD_NODENAME']", frame) == "'node2'"
    text = (await project.tk("status")).out
    assert f"job      {job} on node2" in text and "requeued 1x" in text
    log = project.session_log()
    assert f"job {job} went back into the queue" in log
    assert f"job {job} runs again, on node2" in log
    await project.tk("down")
    await project.nothing_left()


async def test_without_requeue_it_is_over_and_says_what_helps(project: Project) -> None:
    status = await project.up("--partition", "scavenge", "--cpus", "2")
    await project.loop("python", "2.py")
    editor, _, _ = await project.f5_to_stop(STOP)
    async with somebody_wants(project, str(status["node"])):
        await editor.wait_event("terminated", timeout_s=PATIENCE_S)
        ended = await until(project, "ended", "PREEMPTED")
        assert "with `tk up --requeue` such a job comes back" in str(ended["detail"])
        assert said(editor)


async def test_up_while_the_session_learns_of_its_jobs_end_gets_another(project: Project) -> None:
    status = await project.up("node1")
    jobs = {status["job"]["id"]}
    for _ in range(2):
        processes.kill([status["agent"]["pid"]])
        status = await project.up("node1")
        jobs.add(status["job"]["id"])
    assert len(jobs) == 3
    await project.tk("down")
    project.forget_killed_agents()
