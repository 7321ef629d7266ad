"""Ranks as VS Code, nvim-dap and dape debug them, each in its own order of messages."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.rank_editors import DAPE, NVIM_DAP, VSCODE, Manner, Session
from tests.support.tkrig import Project, line_of

pytestmark = pytest.mark.slow

PROGRAM = """\
    import os
    rank = int(os.environ["SLURM_PROCID"])
    print(f"rank {rank} done", flush=True)
    """
STOP = line_of(PROGRAM, "print(")


@pytest.fixture
async def up(project: Project) -> Project:
    project.write("train.py", PROGRAM)
    await project.up("node1", "--cpus", "4")
    return project


def session(project: Project, manner: Manner) -> Session:
    configuration: dict[str, object] = {
        "name": "tk: attach",
        "type": "debugpy",
        "request": "attach",
        "justMyCode": True,
        "pathMappings": project.path_mappings,
    }
    if manner.tells_connect:
        configuration["connect"] = {"host": "127.0.0.1", "port": project.port}
    breakpoints = {str(project.dir / "train.py"): [STOP]}
    return Session(manner, project.port, breakpoints, configuration)


@pytest.mark.parametrize("manner", [VSCODE, NVIM_DAP, DAPE], ids=lambda one: one.client_id)
@pytest.mark.parametrize("first", [0, 1])
async def test_either_rank_may_end_first_and_the_other_stays_where_it_stands(
    up: Project, manner: Manner, first: int
) -> None:
    terminal = await up.loop("srun", "-n2", "python", "train.py")
    parent = session(up, manner)
    try:
        await parent.open()
        child = await parent.child()
        await parent.event("stopped")
        await child.event("stopped")
        ranks = [parent, child]
        await ranks[first].go_on()
        async with asyncio.timeout(60):
            await ranks[first].over.wait()
        await terminal.line(f"rank {first} done")
        other = ranks[1 - first]
        frame = (await other.request("stackTrace", threadId=1))["stackFrames"][0]
        assert frame["line"] == STOP
        await other.go_on()
        async with asyncio.timeout(60):
            await other.over.wait()
        await terminal.line(r"run 1 · ended: exit code 0")
        await terminal.line("run 2 .*armed")
    finally:
        await parent.close()
