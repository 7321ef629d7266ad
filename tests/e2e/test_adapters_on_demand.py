"""Ranks without an editor need no debug adapter, and get one when an editor asks."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from tests.support.pty_terminal import on_a_terminal
from tests.support.rank_editors import VSCODE, Session
from tests.support.tkrig import Project, eventually, line_of

pytestmark = pytest.mark.slow

PROGRAM = """\
    import os
    import subprocess
    import sys

    rank = int(os.environ["SLURM_PROCID"])
    doubled = rank * 2
    for number in range(2):
        doubled += number
    # Each dials in as the rank did, and waits for a debugger.
    subprocess.run([sys.executable, "-c", "print('child of a rank')"])
    if not (child := os.fork()):
        print(f"fork of {rank}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(f"rank {rank} done: {doubled}", flush=True)
    """
ADDS = line_of(PROGRAM, "doubled += number")


def adapters(project: Project) -> int:
    """The adapters of the session; its server of adapters looks the same, and is not counted."""
    module = "tunnelkit.debug.adapter.adapter_server"
    return sum(module in one.argv for one in project.laptop_processes()) - 1


async def console(project: Project, *lines: str) -> list[str]:
    """The answers of a console to these lines, as text."""
    words = [word for line in lines for word in ("-c", line)]
    done = await project.tk("console", "--json", *words)
    return ["\n".join(one["text"] for one in line["answers"]) for line in json.loads(done.out)]


async def all_wait(project: Project, ranks: int) -> None:
    async def waiting() -> bool:
        done = await project.tk("ranks", "--json", code=None)
        return not done.code and len(done.json["ranks"]) == ranks

    while not await waiting():
        await asyncio.sleep(0.3)


@pytest.fixture
async def four_ranks(project: Project) -> Project:
    project.write("train.py", PROGRAM)
    await project.up("--nodes", "2", "--cpus", "4")
    return project


def at_rank(project: Project, rank: int, *lines: int) -> Session:
    """An editor as VS Code is, that attaches to one rank's own port."""
    port = project.port + rank
    configuration: dict[str, object] = {
        "name": "tk: attach",
        "type": "debugpy",
        "request": "attach",
        "justMyCode": True,
        "pathMappings": project.path_mappings,
        "connect": {"host": "127.0.0.1", "port": port},
    }
    return Session(VSCODE, port, {str(project.dir / "train.py"): [*lines]}, configuration)


async def test_a_console_makes_no_adapter_and_an_editor_that_comes_later_does(
    four_ranks: Project,
) -> None:
    project = four_ranks
    terminal = await project.loop("srun", "-n", "4", "python", "train.py")
    await all_wait(project, 4)
    # That of rank 0, which F5 is on.
    assert adapters(project) == 1
    await console(project, f"b train.py:{ADDS}", "c", "p doubled", "n")
    assert adapters(project) == 1
    editor = at_rank(project, 2, ADDS)
    try:
        await editor.open()
        assert (await editor.event("stopped"))["threadId"] == 1
        [frame, *_] = (await editor.request("stackTrace", threadId=1))["stackFrames"]
        assert frame["line"] == ADDS - 1, "where the console's step has left it"
        found = await editor.request("evaluate", expression="doubled", frameId=frame["id"])
        assert found["result"] == "4"
        assert adapters(project) == 2
        # Both are on it.
        assert await console(project, "cast ranks(2) p rank", "cast ranks(1) p rank") == ["2", "1"]
        await editor.request("next", threadId=1)
        await editor.event("stopped")
        # An editor opens what the console asks for.
        [opens, has, also] = await console(project, "editor 3", "editor 2", "editor 1")
        assert opens == "rank 3 opens in vscode"
        assert has == "rank 2 is in vscode already"
        assert also == "rank 1 opens in vscode"
        await eventually(lambda: len(editor.children) == 2, "both have sessions")
        for child in editor.children:
            assert (await child.event("stopped"))["threadId"] == 1
        assert adapters(project) == 4
        await console(project, "cast ranks(0) c")
        for one in (editor, *editor.children):
            await one.go_on()
        await terminal.line(r"run 1 · ended: exit code 0")
    finally:
        await editor.close()
    assert terminal.text.count(" done: ") == 4


async def test_ranks_of_a_killed_session_are_where_a_console_has_left_them(
    four_ranks: Project,
) -> None:
    project = four_ranks
    terminal = await project.loop("srun", "-n", "4", "python", "train.py")
    await all_wait(project, 4)
    await console(project, f"b train.py:{ADDS}", "c", "p doubled", "cast ranks(3) n")
    os.kill((await project.tk("status", "--json")).json["pid"], signal.SIGKILL)
    await terminal.line("the session is gone")
    await project.up()
    await all_wait(project, 4)
    assert adapters(project) == 1
    editor = at_rank(project, 3, ADDS)
    try:
        await editor.open()
        assert (await editor.event("stopped"))["threadId"] == 1
        [frame, *_] = (await editor.request("stackTrace", threadId=1))["stackFrames"]
        assert frame["line"] == ADDS - 1
        assert adapters(project) == 2
        assert await console(project, "cast ranks(3) p rank", "cast ranks(2) p rank") == ["3", "2"]
        await console(project, "cast ranks(0-2) c")
        await editor.go_on()
        await terminal.line(r"run 1 · ended: exit code 0")
    finally:
        await editor.close()


async def test_processes_of_a_rank_without_an_editor_run_free(four_ranks: Project) -> None:
    project = four_ranks
    terminal = await project.loop("srun", "-n", "4", "python", "train.py")
    await all_wait(project, 4)
    [port] = await console(project, "editor 3")
    assert port.startswith(f"rank 3: attach an editor to 127.0.0.1:{project.port + 3}")
    await console(project, "c")
    await terminal.line(r"run 1 · ended: exit code 0")
    for words in ("child of a rank", "fork of ", " done: "):
        assert terminal.text.count(words) == 4, words
    assert adapters(project) <= 2


RAISES = """\
    import os
    import time

    rank = int(os.environ["SLURM_PROCID"])
    while "go" not in os.listdir("."):
        time.sleep(0.05)
    try:
        if rank == 1:
            raise ValueError(f"bad rank {rank}")
    except ValueError:
        print("caught", flush=True)
    """


async def test_a_console_stops_at_an_exception_and_no_editor_takes_that_away(
    project: Project,
) -> None:
    project.write("train.py", RAISES)
    await project.up("--cpus", "2")
    terminal = await project.loop("srun", "-n", "2", "python", "train.py")
    await all_wait(project, 2)
    editor = at_rank(project, 1)
    try:
        async with on_a_terminal(project, "console") as screen:
            await screen.shows(r"\(tk 0-1\)")
            screen.type("catch raised\r")
            await screen.shows("stops at raised exceptions")
            screen.type("c\r")
            await screen.shows("begins")
            # Its own filters are none.
            await editor.open()
            (project.remote() / "go").touch()
            await screen.shows(r"rank 1 stopped at ValueError: bad rank 1")
            assert (await editor.event("stopped"))["reason"] == "exception"
            screen.type("catch off\r")
            screen.type("cast ranks(1) c\r")
            await terminal.line("caught")
            await terminal.line(r"run 1 · ended: exit code 0")
            screen.type("q\r")
            assert await screen.process.wait() == 0
    finally:
        await editor.close()
