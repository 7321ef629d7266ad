"""kill -9 of the session's process: the cluster's side goes on, and `tk up` finds it again."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from tests.support import processes
from tests.support.tkrig import PROGRAM, Project, eventually, line_of
from tunnelkit.errors import AllocationError, UsageError

STOP = line_of(PROGRAM, "total += step")


async def test_job_and_debuggee_outlive_it_and_tk_up_takes_them_over(project: Project) -> None:
    status = await project.up("node1", "--gpus", "1", "--cpus", "2")
    terminal = await project.loop("python", "2.py")
    editor, _, frame = await project.f5_to_stop(STOP)
    debuggee = int(await editor.evaluate("os.getpid()", frame))
    agent = status["agent"]["pid"]

    os.kill(status["pid"], signal.SIGKILL)
    await terminal.line("the session is gone; the program lives on")
    assert processes.is_alive(debuggee) and processes.is_alive(agent)
    assert await project.jobs() == [f"{status['job']['id']} RUNNING"]

    started = time.monotonic()
    again = await project.up()
    assert time.monotonic() - started < 30, "seconds, not minutes"
    assert again["job"]["id"] == status["job"]["id"]
    assert again["job"]["adopted"] is True
    assert again["pid"] != status["pid"]
    assert again["agent"]["pid"] == agent
    assert await project.jobs() == [f"{status['job']['id']} RUNNING"]
    assert processes.is_alive(debuggee)

    # The next F5 finds the debuggee where it was left.
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert int(await editor.evaluate("os.getpid()", frame)) == debuggee
    await editor.request("next", threadId=thread)
    thread, frame = await editor.stopped()
    assert frame["line"] == STOP + 1
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)

    # And the terminal goes on showing the loop.
    await terminal.line("the session is back")
    await terminal.line("^step 2 first$")
    await terminal.line("run 1 · ended: exit code 0")
    await terminal.line("run 2 .*armed")
    editor, thread, frame = await project.f5_to_stop(STOP)
    assert int(await editor.evaluate("os.getpid()", frame)) != debuggee
    assert await terminal.quit() == 0


async def test_a_restart_by_the_terminal_of_a_killed_session_works_after_tk_up(
    project: Project,
) -> None:
    status = await project.up("node1", "--cpus", "2")
    terminal = await project.loop("python", "2.py")
    os.kill(status["pid"], signal.SIGKILL)
    await terminal.line("the session is gone")
    await project.up()
    await terminal.line("the session is back")
    terminal.interrupt()
    await terminal.line("restarting")
    await terminal.line("run 2 .*armed")


async def test_tk_down_after_a_kill_ends_job_and_ssh(project: Project) -> None:
    status = await project.up("node1", "--cpus", "2")
    terminal = await project.loop("python", "2.py")
    os.kill(status["pid"], signal.SIGKILL)
    done = await project.tk("down")
    assert status["job"]["id"] in done.out
    assert await terminal.ended() == 0
    await project.nothing_left()


async def test_a_new_job_may_have_another_node_than_the_last(project: Project) -> None:
    status = await project.up("node2", "--cpus", "2")
    os.kill(status["pid"], signal.SIGKILL)
    await project.do_on_login("scancel", status["job"]["id"])
    again = await project.up()
    assert again["job"]["id"] != status["job"]["id"]
    record = await project.do_on_login("scontrol", "show", "job", again["job"]["id"])
    assert " ReqNodeList=(null) " in record


@pytest.mark.logins(login=3, node1=2)  # each refused session closes its connection
async def test_another_request_after_a_kill_is_refused_and_the_job_is_still_found(
    project: Project,
) -> None:
    status = await project.up("node1", "--gpus", "1", "--cpus", "2")
    os.kill(status["pid"], signal.SIGKILL)
    job, down_first = status["job"]["id"], "tk down first"
    done = await project.tk("up", "node2", code=int(AllocationError.exit_code))
    assert f"job {job} on node1" in done.err and down_first in done.err
    done = await project.tk("up", "--gpus", "2", code=int(UsageError.exit_code))
    assert "gpus is 1, not 2" in done.err and down_first in done.err
    for words in ((), ("--gpus", "1")):
        assert (await project.up(*words))["job"]["id"] == job
    assert await project.jobs() == [f"{job} RUNNING"]


async def test_two_tk_up_at_once_after_a_kill_make_one_session_and_no_second_job(
    project: Project,
) -> None:
    status = await project.up("node1", "--cpus", "2")
    os.kill(status["pid"], signal.SIGKILL)
    first, second = await asyncio.gather(project.up(), project.up())
    assert first["pid"] == second["pid"]
    assert first["job"]["id"] == second["job"]["id"] == status["job"]["id"]
    assert await project.jobs() == [f"{status['job']['id']} RUNNING"]


async def test_what_a_program_writes_while_no_session_is_there_is_in_tk_logs(
    project: Project,
) -> None:
    status = await project.up("node1", "--cpus", "2")
    # It tells by a file that all of it is written, as nobody is there to read it.
    script = (
        "echo before; until [ -e go ]; do sleep 0.05; done; echo meanwhile; touch done; sleep 600"
    )
    terminal = await project.loop("sh", "-c", script, armed=False)
    await terminal.line("^before$")
    os.kill(status["pid"], signal.SIGKILL)
    await terminal.line("the session is gone; the program lives on")
    (project.remote() / "go").touch()
    await eventually((project.remote() / "done").exists, "end of the program's output")

    await project.up()
    await terminal.line("the session is back")
    await terminal.line("^meanwhile$")
    out = (await project.tk("logs")).out.splitlines()
    assert [line for line in out if line in ("before", "meanwhile")] == ["before", "meanwhile"]
    assert await terminal.quit() == 0
