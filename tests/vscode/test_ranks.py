"""Ranks of one program on two nodes in a real VS Code: one F5, a session for each."""

from __future__ import annotations

import pytest

from tests.support.tkrig import Project, Terminal, line_of
from tests.vscode.window import Window
from tunnelkit.debug.vscode.vscode import ATTACH_NAME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SOURCE = """\
import os

RANK = int(os.environ["SLURM_PROCID"])


def train(batch: list[int]) -> None:
    share = batch[RANK::2]
    loss = sum(share) / len(share)
    print(f"rank {RANK}: loss {loss}", flush=True)


if __name__ == "__main__":
    train(batch=[8, 1, 4, 3])
"""
STOP = line_of(SOURCE, "loss = sum(")
NEXT = line_of(SOURCE, "print(")
#: As a session is called that F5 opened itself: by its launch configuration.
FIRST, SECOND = ATTACH_NAME, "rank 1 · node2"


@pytest.fixture
async def armed(project: Project, vscode: Window) -> Terminal:
    """A loop of two ranks, and its file open with a breakpoint in it."""
    project.write("train.py", SOURCE)
    await project.up("--nodes", "2")
    await project.tk("vscode", "--ranks", "2")
    terminal = await project.loop("srun", "-n2", "python", "train.py")
    await vscode.open_file("train.py")
    await vscode.click_breakpoint(STOP)
    return terminal


async def test_one_f5_is_on_both_ranks(vscode: Window, armed: Terminal) -> None:
    await vscode.f5()
    assert await vscode.stopped_line() == STOP
    await vscode.make_room()
    assert sorted(await vscode.paused_sessions(2)) == [SECOND, FIRST]
    await vscode.shows_session(FIRST, "rank 0 · node1: breakpoint")
    await vscode.shows_session(SECOND, "Paused on breakpoint")
    await vscode.focus_session(SECOND)
    await vscode.shows_variable("share", "[1, 3]")
    await vscode.step_over()
    await vscode.stands(SECOND, NEXT)
    # While a step takes long, VS Code shows another session that stands.
    await vscode.focus_session(SECOND)
    await vscode.shows_variable("loss", "2.0")
    await vscode.stands(FIRST, STOP)
    await vscode.picture("ranks")

    # One goes on alone and is over; the other is still where it was.
    await vscode.f5()
    await armed.line(r"^rank 1: loss 2\.0")
    await vscode.focus_session(FIRST)
    await vscode.shows_variable("share", "[8, 4]")
    await vscode.f5()
    await armed.line(r"^rank 0: loss 6\.0")
    await armed.line(r"run 1 · ended: exit code 0")
    await vscode.session_over()

    await vscode.f5()
    assert sorted(await vscode.paused_sessions(2)) == [SECOND, FIRST]
    await vscode.focus_session(FIRST)
    await vscode.shift_f5()
    await vscode.session_over()
    await armed.line(r"run 2 · ended: .*editor left")
    assert armed.text.count("rank 1: loss") == 1

    await vscode.f5()
    assert sorted(await vscode.paused_sessions(2)) == [SECOND, FIRST]


async def test_one_rank_is_let_go(vscode: Window, armed: Terminal) -> None:
    """Stop and Restart on a rank's own session; both mean that rank alone to VS Code."""
    await vscode.f5()
    await vscode.paused_sessions(2)
    await vscode.focus_session(SECOND)
    await vscode.shows_variable("share", "[1, 3]", SECOND)
    await vscode.restart()
    await armed.line(r"^rank 1: loss 2\.0")
    await vscode.notice("Restart rank 0 · node1 instead: it brings all ranks back.")
    await vscode.shows_call_stack(f"train, line {STOP}, train.py")
    await vscode.shows_variable("share", "[8, 4]")
    await vscode.restart()
    await armed.line(r"run 1 · ended: .*editor left")
    assert sorted(await vscode.paused_sessions(2)) == [SECOND, FIRST]

    await vscode.focus_session(SECOND)
    await vscode.shows_variable("share", "[1, 3]", SECOND)
    await vscode.shift_f5()
    await armed.line(r"^rank 1: loss 2\.0")
    await vscode.shows_call_stack(f"train, line {STOP}, train.py")
    await vscode.focus_session(FIRST)
    await vscode.shows_variable("share", "[8, 4]")
    await vscode.f5()
    await armed.line(r"^rank 0: loss 6\.0")
    await armed.line(r"run 2 · ended: exit code 0")
    await vscode.session_over()


async def test_the_compound_has_a_session_for_each_rank(vscode: Window, armed: Terminal) -> None:
    """As `tk vscode --ranks` writes it."""
    for run in (1, 2):
        if run == 1:
            await vscode.start("tk: ranks 0-1")
        else:
            await vscode.f5("tk: ranks 0-1")
        assert sorted(await vscode.paused_sessions(2)) == ["tk: rank 0", "tk: rank 1"]
        if run == 1:
            await vscode.make_room()
            await vscode.picture("compound")
            for rank in (1, 0):
                await vscode.focus_session(f"tk: rank {rank}")
                await vscode.f5("tk: ranks 0-1")
                await armed.line(rf"^rank {rank}: loss")
            await armed.line(r"run 1 · ended: exit code 0")
        else:
            # stopAll
            await vscode.focus_session("tk: rank 1")
            await vscode.shift_f5()
            await armed.line(r"run 2 · ended: .*editor left")
        await vscode.session_over()
