"""Several processes in one session of a real VS Code: they are all in its call stack."""

from __future__ import annotations

import re

import pytest

from tests.support.tkrig import Project, line_of
from tests.vscode.window import Window

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SOURCE = """\
import multiprocessing


def work(number: int) -> None:
    square = number * number
    print(f"square {square}", flush=True)


if __name__ == "__main__":
    workers = [multiprocessing.Process(target=work, args=(n,)) for n in (3, 4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
"""
STOP = line_of(SOURCE, "print(")


def _pid(name: str) -> int:
    return int(name.split()[-1])


async def test_both_children_are_in_the_call_stack(project: Project, vscode: Window) -> None:
    project.write("main.py", SOURCE)
    await project.up("node1")
    await project.tk("vscode")
    terminal = await project.loop("python", "main.py")

    await vscode.open_file("main.py")
    await vscode.click_breakpoint(STOP)
    await vscode.f5()
    assert await vscode.stopped_line() == STOP
    children = sorted(await vscode.paused_sessions(2), key=_pid)
    assert all(re.fullmatch(r"Subprocess \d+", name) for name in children), children
    await vscode.picture("processes")
    for name, square in zip(children, ("9", "16"), strict=True):
        await vscode.focus_session(name)
        await vscode.shows_variable("square", square, name)
        await vscode.f5()
        await terminal.line(rf"^square {square}$")
    await terminal.line(r"run 1 · ended: exit code 0")
    await vscode.session_over()
