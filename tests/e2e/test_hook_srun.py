"""Ranks that a real srun starts, on two nodes."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

from tests.lab_fixtures import ssh_argv
from tests.support.hook_rig import node
from tunnelkit.lab import LabInfo

PROGRAM = """\
import os
rank = os.environ["SLURM_PROCID"]
os.write(1, f"rank {rank} ran\\n".encode())
"""


async def test_srun_tasks_on_two_nodes_stop_at_one_breakpoint(
    slurm_lab: LabInfo, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    async with node(tmp_path) as here:
        here.also_known_as("node1", "node2")
        given = here.environment({"step": None})
        words = [f"{name}={given[name]}" for name in ("TK_RANKS", "PYTHONPATH")]
        srun = ["srun", "-N2", "-n4", f"--chdir={tmp_path}", sys.executable, str(program)]
        job = await here.run(*ssh_argv(slurm_lab, "login"), shlex.join(["env", *words, *srun]))

        async def through(rank: int) -> tuple[int, str]:
            target = await here.target(rank)
            editor = await target.editor({str(program): [3]})
            thread, frame = await editor.stopped()
            word = await editor.evaluate("rank", frame)
            await editor.finish(thread)
            assert target.rank is not None and word == f"'{rank}'"
            return target.rank.world_size, target.identity.environ["SLURMD_NODENAME"]

        found = await asyncio.gather(*(through(rank) for rank in range(4)))
        ended = await job.ended()
        assert (ended.code, ended.output.count(" ran")) == (0, 4), ended.output
        assert {size for size, _ in found} == {4}
        assert {name for _, name in found} == {"node1", "node2"}
