"""The main job over the second link: paramiko in the session's process, and no ssh at all."""

from __future__ import annotations

import contextlib
import os
import signal

from tests.support.ports import free_port
from tests.support.tkrig import PROGRAM, Project, line_of

STOP = line_of(PROGRAM, "total += step")
_BIG_BYTES = 9 << 20  # by rsync, which borrows a session of the link


async def test_the_main_job_by_paramiko(project: Project) -> None:
    status = await project.up("node1", "--gpus", "1", "--link", "paramiko")
    assert status["state"] == "ready" and status["node"] == "node1"
    assert not [one for one in project.laptop_processes() if one.program == "ssh"]

    terminal = await project.loop("python", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert await editor.evaluate("os.environ['SLURMD_NODENAME']", frame) == "'node1'"

    project.write("new.py", "print('new')\n")
    (project.dir / "big.bin").write_bytes(os.urandom(_BIG_BYTES))
    await project.tk("sync")
    assert project.remote("new.py").read_text() == "print('new')\n"
    assert project.remote("big.bin").read_bytes() == (project.dir / "big.bin").read_bytes()
    assert (await project.tk("run", "python", "new.py")).out == "new\n"
    port = free_port()
    assert (
        "ssh to the node" in (await project.tk("forward", f"{port}:127.0.0.1:{project.port}")).out
    )

    for connection in project.sshd_connections():
        with contextlib.suppress(ProcessLookupError):
            os.kill(connection.pid, signal.SIGKILL)
    # The same stop, the same editor: nothing of the debug session was lost.
    assert await editor.evaluate("step", frame) == "0"
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")

    assert (await project.tk("run", "printenv", "SLURMD_NODENAME")).out == "node1\n"
    project.write("new.py", "print('newer')\n")
    await project.tk("sync")
    assert project.remote("new.py").read_text() == "print('newer')\n"

    await project.tk("down")
    assert await terminal.ended() == 0
    await project.nothing_left()
