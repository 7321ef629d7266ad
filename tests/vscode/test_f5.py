"""F5 in a real VS Code, with the tasks.json and launch.json that `tk vscode` wrote."""

from __future__ import annotations

import pytest

from tests.support.tkrig import Project, line_of
from tests.vscode.window import Window

pytestmark = pytest.mark.timeout(300)

SOURCE = """\
import os

LEARNING_RATE = 0.1


def train(steps: int) -> float:
    node = os.environ["SLURMD_NODENAME"]
    rate = LEARNING_RATE
    loss = 1.0
    for step in range(steps):
        loss *= 1 - rate
    print(f"{node}: loss {loss:.3f} at rate {rate}", flush=True)
    return loss


if __name__ == "__main__":
    train(steps=3)
"""
EDITED = line_of(SOURCE, "LEARNING_RATE =")
STOP = line_of(SOURCE, "print(")
LAST = line_of(SOURCE, "train(steps=3)")


async def test_edit_and_f5_again(project: Project, vscode: Window) -> None:
    project.write("main.py", SOURCE)
    await project.up("node1")
    await project.tk("vscode")
    terminal = await project.loop("python", "main.py")

    await vscode.open_file("main.py")
    await vscode.click_breakpoint(STOP)
    await vscode.f5()
    assert await vscode.stopped_line() == STOP
    await vscode.shows_variable("node", "'node1'")
    await vscode.shows_variable("rate", "0.1")
    await vscode.picture("f5")
    await vscode.shows_call_stack(f"train, line {STOP}, main.py", f"<module>, line {LAST}, main.py")
    await vscode.f5()
    await terminal.line(r"^node1: loss 0\.729 at rate 0\.1")
    await vscode.session_over()

    await vscode.retype(EDITED, "LEARNING_RATE = 0.5")
    await vscode.f5()
    assert await vscode.stopped_line() == STOP
    await vscode.shows_variable("rate", "0.5")
    await vscode.picture("f5-again")
    await vscode.shift_f5()
    await vscode.session_over()

    # Stop means stop: the line that prints never ran, and the next F5 finds a debuggee.
    await vscode.f5()
    assert await vscode.stopped_line() == STOP
    assert not any("at rate 0.5" in line for line in terminal.lines)
    await vscode.f5()
    await terminal.line(r"^node1: loss 0\.125 at rate 0\.5")
    await vscode.session_over()


@pytest.mark.slow
async def test_without_a_session_f5_says_what_to_do(project: Project, vscode: Window) -> None:
    project.write("main.py", SOURCE)
    await project.tk("vscode")
    await vscode.open_file("main.py")
    await vscode.f5()
    assert "'tk: ready' terminated with exit code" in await vscode.dialog()
    await vscode.shows_in_terminal("no session is up for this project")
    await vscode.picture("no-session")
    await vscode.answer("Abort")
