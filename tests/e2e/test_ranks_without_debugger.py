"""`tk ranks` on a program that was started without a debugger: it is seen from outside."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest

from tests.e2e.test_where_ranks_are import looked, needs_torch, until
from tests.support.tkrig import PATIENCE_S, Project, Terminal, eventually

pytestmark = pytest.mark.slow

#: Rank 1 computes, all others wait.
SPREAD = """\
    import os
    import time

    def spin():
        while not os.path.exists("enough"):
            pass

    def wait():
        while not os.path.exists("enough"):
            time.sleep(1)

    rank = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
    open(f"begun{rank}", "w").close()
    {1: spin}.get(rank, wait)()
    """


def activities_of(answer: dict[str, Any]) -> dict[int, str]:
    return {rank: one["activity"] for one in answer["classes"] for rank in one["ranks"]}


def states_of(answer: dict[str, Any]) -> dict[int, str]:
    return {one["rank"]: one["state"] for one in answer["ranks"]}


async def started(project: Project, ranks: int, *command: str) -> Terminal:
    terminal = await project.terminal("run", *command, "spread.py")
    begun = [project.remote() / f"begun{rank}" for rank in range(ranks)]
    await eventually(lambda: all(one.exists() for one in begun), "all have begun", PATIENCE_S)
    return terminal


async def test_ranks_of_srun_on_two_nodes_are_described_by_proc(project: Project) -> None:
    project.write("spread.py", SPREAD)
    await project.up("--nodes", "2", "--cpus", "2")
    terminal = await started(project, 4, "srun", "-n", "4", "python")
    # A rank that is just being woken is in state R for a moment.
    activities = {0: "sleeps", 1: "spins", 2: "sleeps", 3: "sleeps"}
    answer = await until(project, lambda one: activities_of(one) == activities)
    ranks = {one["rank"]: one for one in answer["ranks"]}
    assert {rank: one["node"] for rank, one in ranks.items()} == {
        0: "node1", 1: "node1", 2: "node2", 3: "node2",
    }  # fmt: skip
    assert {one["state"] for one in ranks.values()} == {"undebugged"}
    assert all("spread.py" in one["command"] and not one["frames"] for one in ranks.values())
    assert ranks[1]["process"]["letter"] == "R" and answer["answered"] == 0
    os.kill(ranks[3]["pid"], signal.SIGSTOP)
    try:
        text = (await project.tk("ranks")).out
    finally:
        os.kill(ranks[3]["pid"], signal.SIGCONT)
    assert re.match(r"4 ranks on 2 nodes · python spread.py · no debugger +\d", text)
    assert re.search(r"^\w +1 +1 +- +computes or polls \(\d+% of a CPU, state R\)", text, re.M)
    assert re.search(r"^\w +3 +1 +- +stopped by a signal \(state T", text, re.M)
    assert "ranks 0-3 run without a debugger: no Python stacks of them" in text
    assert "tk attach 0-3" in text
    each = (await project.tk("ranks", "--all", "node=1, local=0")).out.splitlines()
    assert len(each) == 2 and each[1].split()[:2] == ["2", "node2"] and "spread.py" in each[1]
    assert "no rank 4" in (await project.tk("ranks", "4", code=2)).err
    project.remote("enough").touch()
    assert await terminal.ended() == 0
    assert "no debug loop is running" in (await project.tk("ranks", code=10)).err


@needs_torch
async def test_torchrun_itself_is_no_rank(project: Project) -> None:
    project.write("spread.py", SPREAD)
    await project.up("--cpus", "4")
    launcher = ("torchrun", "--standalone", "--nproc-per-node", "2")
    terminal = await started(project, 2, *launcher)
    answer = await looked(project)
    assert [(one["rank"], one["state"]) for one in answer["ranks"]] == [
        (0, "undebugged"),
        (1, "undebugged"),
    ]
    project.remote("enough").touch()
    assert await terminal.ended() == 0


async def test_an_attached_rank_answers_beside_those_without_a_debugger(project: Project) -> None:
    project.write("spread.py", SPREAD)
    await project.up("--nodes", "2", "--cpus", "2")
    await started(project, 2, "srun", "-n", "2", "python")
    await project.tk("attach", "1", timeout_s=PATIENCE_S)
    # A debugger that comes late is there once the program is back in Python.
    answer = await until(project, lambda answer: states_of(answer)[1] != "undebugged")
    states = states_of(answer)
    assert states.pop(0) == "undebugged" and states[1] in ("running", "waiting")
    assert "1 of 2 answered" in (await project.tk("ranks")).out
    project.remote("enough").touch()
