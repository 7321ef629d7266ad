"""A session of VS Code, replayed with and without a console on the same process."""

from __future__ import annotations

import pytest

from tests.support.pty_terminal import on_a_terminal
from tests.support.recorded_session import (
    NEVER,
    PROGRAM,
    STOP,
    Message,
    Replay,
    comparable,
    differences,
    recorded,
)
from tests.support.tkrig import Project


@pytest.fixture
async def looping(project: Project) -> Project:
    project.write("main.py", PROGRAM)
    await project.up("node1")
    return project


async def test_the_editor_hears_the_same_with_a_console_there(looping: Project) -> None:
    project = looping
    terminal = await project.loop("python", "main.py")
    alone = Replay()
    await alone.run(project)
    requests = [message for sender, message in recorded(project) if sender == "editor"]
    answers, _ = comparable(alone.heard)
    assert sum('"success": true' in answer for answer in answers) == len(requests)
    await terminal.line(r"run 2 .*armed")

    with_console = Replay()
    async with on_a_terminal(project, "console", PROMPT_TOOLKIT_NO_CPR="1") as screen:
        await screen.shows("waits for a debugger")
        for line in (NEVER, STOP):
            screen.type(f"b main.py:{line}\r")
            await screen.shows(rf"Breakpoint \d at main\.py:{line}")

        async def asks(request: Message) -> None:
            if request["command"] in ("scopes", "variables", "next", "continue", "disconnect"):
                screen.type("p number + 1000\r")
                await screen.shows(r"^100\d$|\)100\d$")

        await with_console.run(project, asks)
        screen.type("q\r")
        assert await screen.ended() == 0
    different = differences(with_console.heard, alone.heard)
    assert not different, "\n".join(different)


async def test_the_editor_hears_the_same_while_consoles_come_and_go(looping: Project) -> None:
    project = looping
    terminal = await project.loop("python", "main.py")
    alone, with_consoles = Replay(), Replay()
    await alone.run(project)
    await terminal.line(r"run 2 .*armed")

    async def come_and_go(request: Message) -> None:
        if request["command"] in ("evaluate", "next", "continue"):
            lines = (f"b main.py:{NEVER}", f"tbreak main.py:{STOP}", "p number + 1000")
            done = await project.tk("console", *(word for line in lines for word in ("-c", line)))
            assert "100" in done.out

    await with_consoles.run(project, come_and_go)
    different = differences(with_consoles.heard, alone.heard)
    assert not different, "\n".join(different)
