"""One program as a rank in each of several pods, and an editor for each of them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.kube_rig import KubeProject
from tests.support.tkrig import PATIENCE_S, line_of
from tunnelkit.demo.dap_client import DapClient

TRAIN = """\
import os
import socket

rank = int(os.environ["RANK"])
size = int(os.environ["WORLD_SIZE"])
for step in range(3):
    total = rank * 10 + step
print("rank", rank, "of", size, "done in", os.environ["TK_NODE"])
"""
STOP = line_of(TRAIN, "total = rank")


async def children(
    project: KubeProject, first: DapClient, count: int, stop: int = STOP
) -> dict[int, DapClient]:
    """The sessions that the editor on rank 0 was asked to open, by rank."""
    found: dict[int, DapClient] = {}
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            asked = await first.wait_event("debugpyAttach", timeout_s=60)
            editor = await project.editor(int(asked["connect"]["port"]) or None)
            rank = int(asked["tkRank"])
            await editor.attach(
                {str(project.dir / "train.py"): [stop]},
                path_mappings=project.path_mappings,
                timeout_s=60,
                tkRank=rank,
            )
            found[rank] = editor
            assert asked["name"] == f"rank {rank} · train-{rank}"
    return found


async def to_the_end(editor: DapClient, thread: int, source: dict[str, Any]) -> None:
    await editor.request("setBreakpoints", source=source, breakpoints=[])
    await editor.finish(thread, timeout_s=60)
