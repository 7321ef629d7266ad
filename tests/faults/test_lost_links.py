"""ssh dies under a debug session, and the debug session does not notice."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.ports import free_port
from tests.support.tkrig import PATIENCE_S, Project, eventually
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo

PROGRAM = """\
import os
pid = os.getpid()
step = 0
step += 1
step += 2
step += 4
step += 8
step += 16
print("sum", step, flush=True)
"""
FIRST = 4


#: The first, and one more at login and node for each time that all ssh is killed: 5 and the last.
@pytest.mark.logins(7)
async def test_ssh_killed_five_times_while_stopped_and_the_same_session_steps_on(
    project: Project,
) -> None:
    project.write("steps.py", PROGRAM)
    job = (await project.up("node1", "--cpus", "2"))["job"]["id"]
    terminal = await project.loop("python", "steps.py")
    editor, thread, frame = await project.f5_to_stop(FIRST, file="steps.py")
    pid = await editor.evaluate("pid", frame)
    for round_number in range(5):
        killed = project.ssh_processes()
        assert {"ssh", "sshd:"} <= {one.program for one in killed}, killed
        processes.kill(killed)
        # Asked for while there is no link at all: kept, and answered over the next one.
        await asyncio.wait_for(editor.request("next", threadId=thread), PATIENCE_S)
        thread, frame = await editor.stopped(PATIENCE_S)
        assert frame["line"] == FIRST + round_number + 1
        assert await editor.evaluate("step", frame) == str(2 ** (round_number + 1) - 1)
    assert await editor.evaluate("pid", frame) == pid
    processes.kill(project.ssh_processes())
    await asyncio.wait_for(editor.finish(thread, PATIENCE_S), PATIENCE_S)
    await terminal.line("^sum 31$")
    await terminal.line("run 1 · ended: exit code 0")
    await terminal.line("run 2 .*armed")
    status = await project.status()
    assert status["state"] == "ready"
    assert status["job"]["id"] == job
    assert await project.jobs() == [f"{job} RUNNING"]


@pytest.mark.logins(5)
async def test_output_written_while_the_link_is_gone_arrives_whole_and_once(
    project: Project,
) -> None:
    project.write(
        "count.py",
        """\
        import sys, time
        for number in range(4000):
            print("line", number, "x" * 60, flush=True)
            if number % 1000 == 500:
                time.sleep(0.3)
        print("all", flush=True)
        time.sleep(600)
        """,
    )
    await project.up("node1", "--cpus", "2")
    terminal = await project.loop("env", "python", "count.py", armed=False)
    for number in (10, 1010, 2010, 3010):
        await terminal.line(f"^line {number} ")
        processes.kill(project.ssh_processes())
    await terminal.line("^all$")
    # tk's notes are on stderr; they may come between two pieces of a line, and the last be cut.
    output = re.sub(r"\[tk\] [^\n]*(\n|$)", "", terminal.text)
    lines = [line for line in output.splitlines() if "line" in line or "x" in line]
    assert lines == [f"line {number} {'x' * 60}" for number in range(4000)]


@pytest.mark.logins(2)
async def test_what_tk_run_carries_survives_the_death_of_ssh(project: Project) -> None:
    project.write(
        "swallow.py",
        """\
        import os, sys, time
        print("up", flush=True)
        open("started", "w").close()
        while not os.path.exists("go-on"):
            time.sleep(0.01)
        print(len(sys.stdin.buffer.read()))
        """,
    )
    await project.up("node1", "--cpus", "2")
    command = project.tk("run", "python", "swallow.py", stdin=b"x" * 3_000_000)
    running = asyncio.create_task(command)
    await eventually(project.remote("started").exists, "the program runs")
    processes.kill(project.ssh_processes())
    project.remote("go-on").touch()
    assert (await running).out.split() == ["up", "3000000"]


@pytest.mark.logins(3)
async def test_tk_run_ends_by_a_signal_while_the_node_does_not_answer(
    project: Project, healed: LabInfo
) -> None:
    """The program ends once the node can be reached: the session has kept that in mind."""
    await project.up("node1", "--cpus", "2")
    project.write(
        "long.py", "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"
    )
    early = await project.terminal("run", "python", "long.py")
    late = await project.terminal("run", "python", "long.py")
    pids = [(await one.line(r"^pid (\d+)"))[1] for one in (early, late)]
    tk_lab.cut(healed.dir)
    early.process.send_signal(signal.SIGTERM)  # before the session knows
    assert await early.ended() == 128 + signal.SIGTERM
    assert (await project.status())["state"] == "reconnecting"
    late.interrupt()
    assert await late.ended() == 128 + signal.SIGINT
    assert "the program there may go on" in early.text and "may go on" in late.text
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    tk_lab.heal(healed.dir)
    await eventually(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of both", 60
    )


@pytest.mark.logins(3)
async def test_a_loop_ends_by_ctrl_c_while_the_node_does_not_answer(
    project: Project, healed: LabInfo
) -> None:
    """At once for the user, or for a terminal that is gone; on the node once it answers."""
    await project.up("node1", "--cpus", "2")
    patient = await project.loop("--port", str(free_port()), "python", "2.py")
    gone = await project.loop("python", "2.py")
    started = re.findall(r"starting \(pid (\d+)", f"{patient.text}\n{gone.text}")
    assert len(started) >= 2

    def programs() -> list[str]:
        return [pid for pid in started if Path(f"/proc/{pid}").exists()]

    assert len(programs()) >= 2
    tk_lab.cut(healed.dir)
    patient.skip()
    patient.interrupt()
    await patient.line("Ctrl-C again: quit")
    patient.interrupt()
    await patient.line("ending the loop")
    await patient.line("waiting for the node to end it")
    patient.interrupt()
    await patient.line("the session ends the loop once the node answers")
    assert await patient.ended() == 0
    gone.process.send_signal(signal.SIGHUP)
    assert await gone.ended() == 0
    assert len(programs()) >= 2
    tk_lab.heal(healed.dir)
    await eventually(lambda: not programs(), "the end of both", 60)
    assert (await project.status())["loops"] == []
