"""Ranks under a real launcher, a real debugger and an editor each."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hook_rig import SITE, Ended, Node, node, pack

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torchrun and gloo come with torch: pip install torch==2.13.0+cpu",
)

PROGRAM = """\
import os, sys
rank = int(os.environ["RANK"])
line = f"rank {rank} ran {sys.argv[1:]} {'PYTHONPATH' in os.environ}"
os.write(1, f"{line}\\n".encode())
"""

#: The group's own timeout is 2 s; the ranks' breakpoint is before the collective.
# Its two seconds begin once both are there: one comes by way of an editor.
COLLECTIVE = """\
import datetime, os, time
import torch
import torch.distributed as dist
open("there" + os.environ["RANK"], "w").close()
while not all(os.path.exists(f"there{rank}") for rank in range(2)): time.sleep(0.01)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
mine = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(mine)
os.write(1, f"sum {mine.item()}\\n".encode())
dist.barrier(timeout=datetime.timedelta(seconds=2))
dist.destroy_process_group()
"""
BEFORE_COLLECTIVE = 8
PAUSED_S = 5.0


@pytest.fixture(params=["directory", "zip"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Node]:
    site = SITE if request.param == "directory" else pack(tmp_path / "agent.zip")
    async with node(tmp_path, site) as one:
        yield one


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Node]:
    async with node(tmp_path) as one:
        yield one


def torchrun(ranks: int, *target: str) -> list[str]:
    # Without a directory of its own it leaves one in /tmp.
    logs = ("--log-dir", "logs")
    return ["torchrun", "--standalone", *logs, "--nproc-per-node", str(ranks), *target]


@needs_torch
async def test_four_ranks_stop_each_at_the_breakpoint(either: Node) -> None:
    program = either.directory / "train.py"
    program.write_text(PROGRAM)
    job = await either.run(*torchrun(4, "train.py", "--lr", "1"))

    async def stop(rank: int) -> list[str]:
        target = await either.target(rank)
        assert target.rank is not None
        assert (target.rank.local_rank, target.rank.world_size) == (rank, 4)
        editor = await target.editor({str(program): [3]})
        thread, frame = await editor.stopped()
        facts = [await editor.evaluate(word, frame) for word in ("rank", "sys.argv[0]")]
        await editor.finish(thread)
        return facts

    stops = await asyncio.gather(*(stop(rank) for rank in range(4)))
    assert stops == [[str(rank), "'train.py'"] for rank in range(4)]
    ended = await job.ended()
    assert ended.code == 0, ended.output
    # The debugger takes care of a rank's own children: the hook is gone from its environment.
    lines = sorted(line for line in ended.output.splitlines() if line.startswith("rank"))
    assert lines == [f"rank {rank} ran ['--lr', '1'] False" for rank in range(4)]
    assert len(either.targets) == 4


@needs_torch
async def test_only_the_wanted_ranks_are_debugged(here: Node) -> None:
    program = here.directory / "train.py"
    program.write_text(PROGRAM)
    job = await here.run(*torchrun(3, "train.py"), contract={"only": [1]})
    editor = await (await here.target(1)).editor({str(program): [3]})
    thread, _ = await editor.stopped()
    await editor.finish(thread)
    ended = await job.ended()
    assert (ended.code, ended.output.count(" ran ")) == (0, 3), ended.output
    assert len(here.targets) == 1


async def one_paused(here: Node, contract: dict[str, Any], only_while_alive: bool) -> Ended:
    """Two ranks; rank 1 stops before the collective that the other waits in."""
    program = here.directory / "train.py"
    program.write_text(COLLECTIVE)
    job = await here.run(*torchrun(2, "train.py"), contract={"only": [1], **contract})
    editor = await (await here.target(1)).editor({str(program): [BEFORE_COLLECTIVE]})
    thread, _ = await editor.stopped()
    if only_while_alive:
        ended = await job.ended()
        await editor.drop()
        return ended
    # The very thing: time that passes at a breakpoint.
    with pytest.raises(TimeoutError):
        await job.ended(PAUSED_S)
    await editor.finish(thread)
    return await job.ended()


@pytest.mark.slow
@needs_torch
async def test_a_paused_rank_kills_no_other(here: Node) -> None:
    ended = await one_paused(here, {}, only_while_alive=False)
    assert (ended.code, ended.output.count("sum 3.0")) == (0, 2), ended.output
    # Said once, by rank 0, which is none of the debugged ones.
    assert ended.output.count("collective timeouts are raised to 7 days") == 1


@pytest.mark.slow
@needs_torch
async def test_kept_timeouts_do_kill_the_others(here: Node) -> None:
    ended = await one_paused(here, {"collectives": "keep"}, only_while_alive=True)
    assert ended.code != 0
    assert "sum" not in ended.output
    assert "7 days" not in ended.output


#: What the groups of a rank really have, by every way to make one.
GROUPS = """\
import datetime
import torch
import torch.distributed as dist
short = datetime.timedelta(seconds=2)
dist.init_process_group("gloo", timeout=short)
groups = [dist.group.WORLD, dist.new_group([0], timeout=short), dist.new_group([0])]
groups += dist.new_subgroups(1, timeout=short)[1]
dist.distributed_c10d._set_pg_timeout(short, groups[1])
cpu = torch.device("cpu")
took = [group._get_backend(cpu).options._timeout.days for group in groups]
stores = [dist.distributed_c10d._get_default_store(), dist.FileStore("store", 1)]
stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=short))
took += [store.timeout.days for store in stores]
dist.monitored_barrier(timeout=short)
dist.destroy_process_group()
print(took)
"""


@pytest.mark.slow
@needs_torch
async def test_every_group_and_store_is_patient(here: Node) -> None:
    (here.directory / "train.py").write_text(GROUPS)
    job = await here.run(*torchrun(1, "train.py"), contract={"only": []})
    ended = await job.ended()
    assert (ended.code, ended.output.splitlines()[-1]) == (0, str([7] * 7)), ended.output


#: What torchrun makes in its own process.
EXIT_BARRIER = """\
from tunnelkit.debuggee import torch_timeouts
torch_timeouts.install_in_launcher()
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
spec = WorkerSpec(role="x", local_world_size=1, rdzv_handler=None, fn=print)
print(LocalElasticAgent(spec, None)._exit_barrier_timeout)
"""


@needs_torch
async def test_nodes_that_are_done_wait_for_the_others(here: Node) -> None:
    job = await here.run(sys.executable, "-c", EXIT_BARRIER)
    ended = await job.ended()
    assert (ended.code, ended.output) == (0, "604800.0\n"), ended.output
