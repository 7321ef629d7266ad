"""`tk why` of jobs that wait, on the lab's real Slurm: the verdict, and what would start sooner."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project

pytestmark = [pytest.mark.slow, pytest.mark.why("waiting")]

#: How often a job is made to start sooner; by hand 20.
TIMES = int(os.environ.get("TK_SOONER_TIMES", "1"))
SCRIPT = "/usr/bin/printf '#!/bin/sh\\nexec sleep 600\\n'"


class Queue:
    """Jobs of a test in the lab's queue, and what it has changed on the lab."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.jobs: list[str] = []
        self._undo: list[str] = []

    async def sh(self, command: str, code: int | None = 0) -> str:
        """Run a shell command on the login host."""
        return (await self.project.do_on_login("sh", "-c", command, code=code)).strip()

    async def submit(self, options: str, *, runs: bool = False) -> str:
        """Submit a job that sleeps; wait until it runs, or Slurm has a reason why it waits."""
        job = await self.sh(f"{SCRIPT} | sbatch --parsable -o /dev/null {options}")
        self.jobs.append(job)
        await self.until(job, *(["RUNNING"] if runs else ["PENDING"]))
        return job

    async def until(self, job: str, state: str) -> None:
        """Wait for a state; of a waiting job also for the scheduler's look at it."""
        async with asyncio.timeout(60):
            while True:
                said = await self.sh(f"squeue -h -j {job} -o '%T %r'", code=None)
                found, _, reason = said.partition(" ")
                if found == state and (found != "PENDING" or reason not in ("None", "")):
                    return
                await asyncio.sleep(0.1)

    async def planned(self, job: str) -> None:
        """Wait until backfill has planned a job's start."""
        async with asyncio.timeout(60):
            while (await self.sh(f"squeue -h -j {job} -o %S", code=None)) in ("N/A", ""):
                await asyncio.sleep(0.1)

    async def change(self, command: str, undo: str) -> None:
        """Change the lab as its administrator."""
        self._undo.append(undo)
        await self.sh(command)

    async def close(self) -> None:
        """Leave the lab as it was."""
        if self.jobs:
            await self.sh(f"scancel {' '.join(self.jobs)}", code=None)
        for command in reversed(self._undo):
            await self.sh(command, code=None)
        async with asyncio.timeout(60):
            while await self.sh(f"squeue -h -j {','.join(self.jobs) or '0'} -o %i", code=None):
                await asyncio.sleep(0.1)

    async def why(self, job: str, code: str) -> dict[str, Any]:
        """Return the verdict, once it is that one: Slurm may look again in between."""
        async with asyncio.timeout(60):
            while True:
                info = (await self.project.tk("why", job, "--json")).json
                verdict: dict[str, Any] = info["verdicts"][0]
                if verdict["code"] == code:
                    assert info["not_asked"] == []
                    return verdict
                assert verdict["certainty"] != "proven", info
                await asyncio.sleep(0.2)


@pytest.fixture
async def queue(project: Project) -> AsyncIterator[Queue]:
    """An empty queue."""
    async with AsyncExitStack() as stack:
        made = Queue(project)
        stack.push_async_callback(made.close)
        yield made


def _told(verdict: dict[str, Any], label: str) -> str:
    return "; ".join(one["text"] for one in verdict["because"] if one["label"] == label)


async def test_busy_says_who_has_the_node_and_until_when(queue: Queue) -> None:
    other = await queue.submit("-w node1 --exclusive -t 30", runs=True)
    job = await queue.submit("-w node1 -t 60")
    verdict = await queue.why(job, "busy")
    assert verdict["certainty"] == "proven"
    assert "the only node that fits, node1, is in use, until" in verdict["sentence"]
    assert f"node1 by {other} (you)" in _told(verdict, "in use")
    await queue.planned(job)
    text = (await queue.project.tk("why", job)).out
    assert text.startswith(f"job {job} waits ") and "\n  starts    about " in text


async def test_fragmented_gpus(queue: Queue) -> None:
    for node in ("node1", "node2"):
        await queue.submit(f"-w {node} --gpus-per-node=1 -t 30", runs=True)
    job = await queue.submit("--gpus-per-node=2 -t 60")
    verdict = await queue.why(job, "fragmented")
    assert "no single node has 2 GPUs free" in verdict["sentence"]
    assert "GPUs by node: node1 1, node2 1" in _told(verdict, "free")
    assert "submit it again with --gpus-per-node=1" in verdict["next_steps"][0]["text"]


async def test_fragmented_cpus(queue: Queue) -> None:
    for node in ("node1", "node2"):
        await queue.submit(f"-w {node} -c 2 -t 30", runs=True)
    verdict = await queue.why(await queue.submit("-c 3 -t 60"), "fragmented")
    assert "no single node has 3 CPUs free" in verdict["sentence"]


async def test_more_than_any_node_has_is_never(queue: Queue) -> None:
    job = await queue.submit("-c 99")
    verdict = await queue.why(job, "never")
    assert verdict["certainty"] == "proven"
    assert "asks for 99 CPUs on a node, and the largest of gpu has 4 CPUs" in verdict["sentence"]
    nodes = await queue.why(await queue.submit("-N3"), "never")
    assert "it needs 3 nodes, and gpu has 2 nodes for it" in nodes["sentence"]
    done = await queue.project.tk("why", job, "--check", code=14)
    assert "can never start" in done.out


async def test_gpus_on_more_nodes_than_the_partition_allows_since(queue: Queue) -> None:
    """sbatch refuses such a job, so the limit comes while it waits."""
    job = await queue.submit("--hold --gpus=4 -t 30")
    await queue.change(
        "scontrol update partitionname=gpu maxnodes=1",
        "scontrol update partitionname=gpu maxnodes=unlimited",
    )
    await queue.sh(f"scontrol release {job}")
    await queue.until(job, "PENDING")
    verdict = await queue.why(job, "never")
    assert verdict["certainty"] == "proven"
    assert (
        "it asks for 4 GPUs in all, and gpu allows 1 node, of which the largest has 2 GPUs"
        in verdict["sentence"]
    )


async def test_a_drained_node(queue: Queue) -> None:
    await queue.change(
        "scontrol update nodename=node1 state=drain reason='bad dimm | ask ops'",
        "scontrol update nodename=node1 state=resume",
    )
    verdict = await queue.why(await queue.submit("-w node1 -t 30"), "nodes-down")
    assert verdict["certainty"] == "proven" and verdict["actor"] == "administrator"
    assert 'node1 is drained: "bad dimm | ask ops", set by ' in _told(verdict, "down")
    two = await queue.why(await queue.submit("-N2 -t 30"), "nodes-down")
    assert "it needs 2 nodes, and node1 is drained" in two["sentence"]


async def test_maintenance_and_a_limit_that_ends_before(queue: Queue) -> None:
    await queue.change(
        "scontrol create reservation reservationname=tkm starttime=now+30minutes duration=60 "
        "nodes=ALL flags=maint,ignore_jobs users=root",
        "scontrol delete reservation=tkm",
    )
    job = await queue.submit("-t 60")
    verdict = await queue.why(job, "maintenance")
    assert "would run into maintenance tkm, which begins at" in verdict["sentence"]
    assert 20 <= verdict["sooner_min"] <= 28
    done = await queue.project.tk("why", job, "--start-sooner", "auto", "--yes")
    assert "and keeps its place" in done.out
    await queue.until(job, "RUNNING")


async def _behind_a_large_one(queue: Queue) -> str:
    """A job that would fit now, behind one that needs all nodes, which is in 20 minutes."""
    await queue.submit("-w node1 --exclusive -t 20", runs=True)
    large = await queue.submit("-N2 --exclusive -t 60")
    await queue.planned(large)
    return await queue.submit("-t 60")


@pytest.mark.parametrize("_again", range(TIMES))
async def test_turn_and_the_offered_limit_starts_it_at_once(queue: Queue, _again: int) -> None:
    job = await _behind_a_large_one(queue)
    verdict = await queue.why(job, "turn")
    assert "1 job is in front, but node2 is free for" in verdict["sentence"]
    minutes = verdict["sooner_min"]
    assert 10 <= minutes <= 18
    assert verdict["next_steps"][0]["command"] == f"tk why {job} --start-sooner {minutes}"
    begun = time.time()
    await queue.project.tk("why", job, "--start-sooner", "auto", "--yes")
    changed = time.time()
    await queue.until(job, "RUNNING")
    start = int(await queue.sh(f"SLURM_TIME_FORMAT=%s squeue -h -j {job} -o %S"))
    print(f"started {start - changed:.1f} s after its limit was shortened")
    # Two rounds of the lab's scheduler are 2 s; the rest is for a busy machine.
    assert begun - 1 <= start <= changed + 10


async def test_the_question_and_the_refusals(queue: Queue) -> None:
    job, project = await _behind_a_large_one(queue), queue.project
    none = await project.tk("why", job, "--start-sooner", "10", code=2)
    assert "without a terminal nobody can be asked" in none.err
    longer = await project.tk("why", job, "--start-sooner", "60", "--yes", code=2)
    assert f"60 min is not shorter than the time limit of job {job}, 60 min" in longer.err
    async with on_a_terminal(project, "why", job, "--start-sooner", "10") as screen:
        await screen.shows(rf"Shorten the time limit of job {job} to 10 min\? \[y/N\] ")
        screen.type("\n")
        await screen.shows("nothing was changed")
        assert await screen.ended() == 0
    assert await queue.sh(f"squeue -h -j {job} -o %l") == "1:00:00"
    async with on_a_terminal(project, "why", job, "--start-sooner", "10") as screen:
        await screen.shows(r"\[y/N\] ")
        screen.type("y\n")
        await screen.shows(f"job {job} has a time limit of 10 min now, and keeps its place")
        assert await screen.ended() == 0
    await queue.until(job, "RUNNING")
    over = await project.tk("why", job, "--start-sooner", "5", "--yes", code=None)
    assert over.code not in (0, 2) and "does not wait any more" in over.err


async def test_without_a_window_there_is_no_offer(queue: Queue) -> None:
    await queue.submit("-w node1 --exclusive -t 20", runs=True)
    job = await queue.submit("-w node1 -t 60")
    done = await queue.project.tk("why", job, "--start-sooner", "auto", "--yes", code=None)
    assert done.code not in (0, 2)
    assert f"no shorter time limit is known that would start job {job} now" in done.err


async def test_tk_up_says_it_while_it_waits(queue: Queue) -> None:
    other = await queue.submit("-w node1 --exclusive -t 30", runs=True)
    terminal = await queue.project.terminal("up", "node1")
    await terminal.line(
        r"job \d+ waits .*the only node that fits, node1, is in use.*; more: tk why"
    )
    status = await queue.project.status()
    assert (
        "waiting for the resources" in status["detail"] and "node1, is in use" in status["detail"]
    )
    told = (await queue.project.tk("why")).out
    assert f"node1 by {other} (you)" in told
    await queue.sh(f"scancel {other}")
    assert await terminal.ended() == 0


async def test_an_arrays_running_elements_keep_their_time(queue: Queue) -> None:
    """What shortens or cancels the elements that wait leaves those alone that run."""
    script = f"{SCRIPT} | sbatch --parsable -o /dev/null"
    array = await queue.sh(f"{script} -w node1 --exclusive -t 60 --array=0-9")
    queue.jobs.append(array)
    await queue.until(f"{array}_0", "RUNNING")
    done = await queue.project.tk("why", array, "--start-sooner", "20", "--yes")
    assert "20 min" in done.out
    rows = (await queue.sh(f"squeue -h -j {array} -o '%i %T %l'")).splitlines()
    assert sorted(rows) == [f"{array}_0 RUNNING 1:00:00", f"{array}_[1-9] PENDING 20:00"]
    # As `tk why` prints what cancels a job.
    await queue.sh(f"scancel '{array}_[1-9]'")
    left = await queue.sh(f"squeue -h -j {array} -o '%i %T'")
    assert left == f"{array}_0 RUNNING"
