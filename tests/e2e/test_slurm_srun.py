"""Nodes that refuse ssh: everything goes through `srun --overlap`, on the lab's real Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support import processes
from tests.support.ports import free_port
from tests.support.tkrig import PATIENCE_S, PROGRAM, Project, line_of
from tunnelkit import lab as tk_lab

STOP = line_of(PROGRAM, "total += step")
_ECHO = """\
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True:
    peer, _ = listener.accept()
    while data := peer.recv(1 << 16):
        peer.sendall(data)
    peer.close()
"""


@pytest.fixture
async def refusing(project: Project) -> AsyncIterator[Project]:
    """node1's sshd is down: connections are refused, and tk has to find that out."""
    project.configure('[cluster]\nnode_ssh = "auto"\n')
    tk_lab.stop_daemon("sshd-node1", project.lab.dir)
    yield project
    tk_lab.start_daemon("sshd-node1", project.lab.dir)


async def _echoed(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    async with asyncio.timeout(PATIENCE_S):
        answer, _ = await asyncio.gather(reader.read(), send())
    writer.close()
    return answer


@pytest.mark.timeout(240)
async def test_a_debug_session_and_a_forward_outlive_the_way_in(refusing: Project) -> None:
    project = refusing
    project.write("echo.py", _ECHO)
    status = await project.up("node1", "--gpus", "1", "--cpus", "2")
    assert (status["route"], status["node"]) == ("srun", "node1")
    assert "node1 refuses ssh" in project.session_log()
    env = (await project.tk("run", "env")).out.splitlines()
    assert f"SLURM_JOB_ID={status['job']['id']}" in env and "CUDA_VISIBLE_DEVICES=0" in env

    here, there = free_port(), free_port()
    server = await project.terminal("run", "python", "echo.py", str(there))
    await server.line("^up$")
    answer = (await project.tk("forward", f"{here}:{there}", "--json")).json
    assert (answer["route"], answer["ready"]) == ("wire", True)
    sent = bytes(range(256)) * 8192
    assert await _echoed(here, sent) == sent

    terminal = await project.loop("python", "2.py")
    await project.ready()
    editor, thread, frame = await project.f5_to_stop(STOP)
    pid = await editor.evaluate("os.getpid()", frame)
    for line in (STOP + 1, STOP - 1):
        # ssh, and with it srun: the step that carried the link is gone, the loop is none of it.
        processes.kill(project.ssh_processes())
        await asyncio.wait_for(editor.request("next", threadId=thread), PATIENCE_S)
        thread, frame = await editor.stopped(PATIENCE_S)
        assert frame["line"] == line
    assert await editor.evaluate("os.getpid()", frame) == pid
    assert await _echoed(here, sent) == sent
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread, PATIENCE_S)
    await terminal.line("run 1 · ended: exit code 0")
    again = await project.status()
    assert (again["state"], again["route"]) == ("ready", "srun")
    assert again["job"]["id"] == status["job"]["id"]
    await server.close()
