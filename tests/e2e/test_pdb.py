"""`tk pdb`: one run of a program from its first line, with a console on it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project, line_of

SCRIPT = """\
    import os
    import sys
    rank = os.environ.get("SLURM_PROCID", "0")
    print("begun", *sys.argv[1:], flush=True)
    if "fail" in sys.argv:
        sys.exit(3)
    total = int(rank) * 2
    breakpoint()
    print(f"total {total}", flush=True)
    """
#: Rank 1 waits for rank 0, as in all_reduce.
COLLECTIVE = """\
    import os
    import time
    if os.environ["SLURM_PROCID"] == "0":
        breakpoint()
        open("reached", "w").close()
    while not os.path.exists("reached"):
        time.sleep(0.01)
    print("all done", flush=True)
    """
BREAK = line_of(SCRIPT, "breakpoint()")


async def loops(project: Project) -> list[object]:
    found: list[object] = (await project.status())["loops"]
    return found


async def test_a_program_by_hand(project: Project) -> None:
    project.write("train.py", SCRIPT)
    await project.up("node1")
    async with on_a_terminal(project, "pdb", "python", "train.py", "é") as screen:
        await screen.shows(r"train\.py:1 ")
        screen.type("n\r")
        await screen.shows(r"train\.py:2 <module> +import sys")
        screen.type("c\r")
        await screen.shows(r"begun é")
        await screen.shows(r"stopped: train\.py:(8|9) <module>")
        screen.type("p total + 40\r")
        await screen.shows(r"40")
        screen.type("c\r")
        await screen.shows(r"total 0")
        assert await screen.ended() == 0
    assert not await loops(project)
    async with on_a_terminal(project, "pdb", "train.py", "fail") as screen:
        await screen.shows(r"train\.py:1 ")
        screen.type("c\r")
        assert await screen.ended() == 3
    async with on_a_terminal(project, "pdb", "train.py") as screen:
        await screen.shows(r"train\.py:1 ")
        screen.type("q\r")
        await screen.shows(r"ending the program")
        assert await screen.ended() == 0
    assert "left as they are" not in screen.text
    assert not await loops(project)


@pytest.mark.slow
async def test_ranks_by_a_script(project: Project) -> None:
    project.write("train.py", SCRIPT)
    await project.up("--nodes", "2", "--cpus", "4")
    words = ("pdb", "-c", "c", "-c", "p total", "-c", "c", "srun", "-n", "4", "python", "train.py")
    done = await project.tk(*words)
    assert done.out.splitlines().count("begun") == 4 and "total 6" in done.out, done
    # Lines that are left over when the program has ended harm nothing; one that is refused does.
    done = await project.tk("pdb", "-c", "c", "-c", "p 1", "train.py", "fail", code=3)
    # Python without a buffer writes "begun" and "fail" one by one; the answer may come between.
    assert {"begun", "fail"} <= {*done.out.split()} and "new run" not in done.out
    done = await project.tk("pdb", "-c", "on 9", "train.py", code=2)
    assert "begun" not in done.out
    assert not await loops(project)


@pytest.mark.slow
async def test_a_script_goes_on_while_other_ranks_wait_for_the_one_that_stands(
    project: Project,
) -> None:
    project.write("train.py", COLLECTIVE)
    await project.up("node1", "--cpus", "4")
    words = ("pdb", "-c", "c", "-c", "p 40 + 2", "-c", "c", "srun", "-n", "2", "python", "train.py")
    done = await project.tk(*words, timeout_s=60)
    assert "42" in done.out and "all done" in done.out, done


@pytest.mark.slow
async def test_nobody_debugs_it(project: Project) -> None:
    project.write("train.py", SCRIPT)
    await project.up("node1")
    words = ("DEBUG_PORT_NAME=debug", "DEBUG_TIMEOUT=2", "python", "-m", "paipdb", "train.py")
    # `tk run` runs paipdb's form so, too.
    done = await project.tk("run", *words, code=1)
    assert done.out == "No client connect to server in 2 seconds, exit\n"
    assert "paipdb opens a port of the node" in done.err
    assert not await loops(project)
    terminal = await project.terminal("pdb", "train.py")
    await terminal.line("waiting 600 s for somebody")
    terminal.interrupt()
    assert await terminal.ended() == 130
    assert not await loops(project)
    # An editor is somebody, too.
    terminal = await project.terminal("pdb", "train.py")
    await terminal.line(rf"or an editor at port {project.port}$")
    editor, thread, _ = await project.f5_to_stop(BREAK, file="train.py")
    await editor.request("continue", threadId=thread)
    await editor.stopped(60)
    await editor.request("continue", threadId=thread)
    assert await terminal.ended() == 0
    assert "total 0" in terminal.text


@pytest.mark.slow
async def test_a_program_is_kept_and_taken_up_again(project: Project) -> None:
    source = """\
        import paipdb
        paipdb.settrace(port=5678)
        done = "yes"
        print(done, flush=True)
        """
    project.write("train.py", source)
    await project.up("node1")
    async with on_a_terminal(project, "pdb", "--keep", "train.py") as screen:
        await screen.shows(r"train\.py:1 ")
        screen.type("c\r")
        await screen.shows(r"stopped: train\.py:3 <module>")
        screen.type("q\r")
        await screen.shows(r"the program stays as it is")
        assert await screen.ended() == 0
    done = await project.tk("pdb", "-c", "n", "-c", "p done")
    assert "'yes'" in done.out
    async with on_a_terminal(project, "pdb") as screen:
        await screen.shows(r"\(tk 0")
        screen.type("c\r")
        await screen.shows(r"ended")
        screen.type("q\r")
        assert await screen.ended() == 0
    async with asyncio.timeout(30):
        while await loops(project):
            await asyncio.sleep(0.1)


async def test_a_killed_session_leaves_the_program_where_it_stands(project: Project) -> None:
    project.write("train.py", SCRIPT)
    status = await project.up("node1")
    async with on_a_terminal(project, "pdb", "train.py") as screen:
        await screen.shows(r"train\.py:1 ")
        os.kill(status["pid"], signal.SIGKILL)
        await screen.shows(r"the session is gone; the program stays as it is")
        await project.up("node1")
        await screen.shows(r"train\.py:1 ")
        screen.type("n\r")
        await screen.shows(r"train\.py:2 <module> +import sys")
        screen.type("c\r")
        await screen.shows(r"stopped: train\.py:(8|9) <module>")
        screen.type("c\r")
        await screen.shows(r"total 0")
        assert await screen.ended() == 0
    assert not await loops(project)
