"""Ranks that count what a console runs in them, and consoles on terminals."""

from __future__ import annotations

import re
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.pty_terminal import Screen, on_a_terminal
from tests.support.terminal import Terminal
from tests.support.tkrig import Project, eventually, line_of

PROGRAM = textwrap.dedent(
    """\
    import os
    import time

    rank = int(os.environ["SLURM_PROCID"])


    def mark(name, seconds=0.0):
        with open(f"{name}{rank}", "a") as file:
            file.write("x")
        time.sleep(seconds)
        return "marked " + name


    def flood():
        for number in range(200_000):
            print("line", number, "x" * 80)


    total = 0
    breakpoint()
    for number in range(5):
        total += number
        total += 10
    if os.path.exists(f"flood{rank}"):
        flood()
    print("rank", rank, "total", total, flush=True)
    """
)
LOOP = line_of(PROGRAM, "for number in range(5)")
ADDS = line_of(PROGRAM, "total += number")
TENS = line_of(PROGRAM, "total += 10")


async def looping(project: Project, ranks: int) -> Terminal:
    """Start the ranks on as many CPUs."""
    project.write("ranks.py", PROGRAM)
    await project.up("node1", "--cpus", str(ranks))
    return await project.loop("srun", "-n", str(ranks), "python", "ranks.py")


@asynccontextmanager
async def console(project: Project) -> AsyncIterator[Screen]:
    """A console on a terminal of its own."""
    async with on_a_terminal(project, "console", PROMPT_TOOLKIT_NO_CPR="1") as screen:
        yield screen


@asynccontextmanager
async def console_at_the_stop(project: Project, ranks: int) -> AsyncIterator[Screen]:
    """A console that has let the ranks begin; they stand behind breakpoint()."""
    async with console(project) as screen:
        await screen.shows(rf"{ranks} ranks? waits? for a debugger")
        screen.type("c\r")
        await screen.shows(rf"stopped: ranks\.py:{LOOP}")
        yield screen


async def typed(screen: Screen, line: str, *answers: str) -> list[re.Match[str]]:
    """Type a line; the matches of its answers, lines of their own in this order."""
    screen.type(f"{line}\r")
    return [await shown(screen, answer) for answer in answers]


async def shown(screen: Screen, answer: str) -> re.Match[str]:
    """Wait for a line that matches from its beginning."""
    # The prompt is wiped out before something is written above it; that is no line break.
    return await screen.shows(rf"(?:^|^\(tk[^)\n]*\) ?){answer}")


def marks(project: Project, name: str, ranks: int) -> list[str]:
    """One x for each time that a rank has run `mark(name)`."""
    paths = [project.remote() / f"{name}{rank}" for rank in range(ranks)]
    return [path.read_text() if path.exists() else "" for path in paths]


async def all_marked(project: Project, name: str, ranks: int) -> None:
    """Wait until each rank has begun `mark(name)`."""
    await eventually(lambda: all(marks(project, name, ranks)), f"{name} in all ranks")
