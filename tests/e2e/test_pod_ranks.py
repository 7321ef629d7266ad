"""`tk loop` in every pod at once: ranks of several pods are one loop, one F5 is on all of them."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.kube_rig import KubeProject, kill_session, running_stand_in
from tests.support.pod_ranks import STOP, TRAIN, children, to_the_end
from tests.support.ports import free_port
from tests.support.terminal import Terminal
from tests.support.tkrig import line_of, made_project
from tunnelkit.errors import DebugError
from tunnelkit.lab.kube.stand_in import StandIn

_STS = ("StatefulSet", "train")
PODS = ("train-0", "train-1", "train-2")


@pytest.fixture(scope="module")
def pods() -> Iterator[StandIn]:
    with running_stand_in() as cluster:
        yield cluster


@pytest.fixture
async def project(pods: StandIn, tmp_path: Path) -> AsyncIterator[KubeProject]:
    """A session with three pods that share one volume."""
    volume = tmp_path / "volume"
    for pod in PODS:
        pods.make_pod(pod, owner=_STS)
    async with made_project(lambda base: KubeProject(pods, base, remote=str(volume))) as made:
        made.write("train.py", TRAIN)
        await made.up("sts/train")
        yield made
    for pod in PODS:
        pods.remove_pod(pod)


async def through(project: KubeProject, terminal: Terminal, run: int) -> None:
    """F5, all ranks at the breakpoint with their values, and on to the end."""
    first = await project.f5(STOP, file="train.py")
    sessions = {0: first, **await children(project, first, 2)}
    stops = {rank: await editor.stopped(60) for rank, editor in sessions.items()}
    for rank, (_, frame) in stops.items():
        assert await sessions[rank].evaluate("rank * 100 + size", frame) == str(rank * 100 + 3)
    for rank, (thread, frame) in stops.items():
        await to_the_end(sessions[rank], thread, frame["source"])
    await terminal.line(rf"run {run} · ended: exit code 0")


async def test_one_f5_is_on_the_ranks_of_all_pods(project: KubeProject) -> None:
    """Each pod starts the program; the next run begins in all once the last one has ended."""
    terminal = await project.loop("--all-pods", "python", "train.py")
    assert "RANK, WORLD_SIZE: tk gives them" in terminal.text
    assert re.search(r"run 1 · port \d+ · starting in 3 pods", terminal.text)
    await terminal.line(r"all 3 ranks wait \(train-0: 0, train-1: 1, train-2: 2\)")
    shown = (await project.tk("ranks")).out
    assert "0-2" in shown, shown
    await through(project, terminal, 1)
    for rank, pod in enumerate(PODS):
        assert f"rank {rank} of 3 done in {pod}\n" in terminal.text
    await terminal.line(r"run 2 · armed")
    await through(project, terminal, 2)


async def test_a_killed_session_s_loop_is_taken_over_in_all_pods(project: KubeProject) -> None:
    terminal = await project.loop("--all-pods", "python", "train.py")
    await terminal.line(r"all 3 ranks wait")
    kill_session(project)
    await project.up("sts/train")
    await terminal.line(r"the session is back")
    await through(project, terminal, 1)
    await terminal.line(r"run 2 · .* starting in 3 pods")


async def test_a_part_that_fails_ends_the_others(project: KubeProject) -> None:
    """They would wait for it. F5 shows the reason, and the next save mends it."""
    project.write("train.py", 'import os\nassert os.environ["RANK"] != "1", "no GPU"\n' + TRAIN)
    terminal = await project.loop("--all-pods", "--rank", "0", "python", "train.py", armed=False)
    await terminal.line(r"run 1 · train-1 ended: exit code 1")
    await terminal.line(r"run 1 · ended on train-1: exit code 1")
    await terminal.line(r"next try in ")
    with pytest.raises(DebugError, match="no GPU"):
        await project.f5(STOP, file="train.py")
    project.write("train.py", TRAIN)
    await project.ready()
    editor = await project.f5(STOP, file="train.py")
    thread, frame = await editor.stopped(60)
    assert await editor.evaluate("rank", frame) == "0"
    await to_the_end(editor, thread, frame["source"])


async def test_a_pod_that_is_replaced_starts_the_loop_again(
    pods: StandIn, project: KubeProject
) -> None:
    terminal = await project.loop("--all-pods", "python", "train.py")
    await terminal.line(r"all 3 ranks wait")
    pods.remove_pod("train-1")
    why = "what ran on train-1 is gone: it was deleted"
    await terminal.line(rf"waits for another node, and starts again there: {why}")
    pods.make_pod("train-1", owner=_STS)
    await terminal.line(r"all 3 ranks wait")
    await through(project, terminal, 1)


async def test_the_first_pod_alone(project: KubeProject) -> None:
    terminal = await project.loop("--first-pod", "python", "train.py")
    assert re.search(r"run 1 .* starting \(pid \d+ on train-0\)", terminal.text)


GLOO = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mine = torch.ones(1) * (rank + 1)
dist.all_reduce(mine)
print(f"rank {rank} sum {mine.item():.0f}", flush=True)
dist.destroy_process_group()
"""
GLOO_STOP = line_of(GLOO, "dist.all_reduce(mine)")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torchrun and gloo come with torch: scripts/setup --torch",
)
async def test_torchrun_in_each_pod_finds_the_others(project: KubeProject) -> None:
    """Without a word about nodes or addresses; the ranks of all pods meet in one collective."""
    project.write("train.py", GLOO)
    torchrun = ("python", "-m", "torch.distributed.run", "--nproc-per-node", "1")
    terminal = await project.loop(f"PET_MASTER_PORT={free_port()}", *torchrun, "train.py")
    assert "the pods lack PET_MASTER_ADDR, PET_NNODES, PET_NODE_RANK: tk gives" in terminal.text
    first = await project.f5(GLOO_STOP, file="train.py")
    sessions = {0: first, **await children(project, first, 2, GLOO_STOP)}
    stops = {rank: await editor.stopped(90) for rank, editor in sessions.items()}
    for rank, (thread, frame) in stops.items():
        assert await sessions[rank].evaluate("dist.get_world_size()", frame) == "3"
        await sessions[rank].request("continue", threadId=thread)
    for editor in sessions.values():
        await editor.wait_event("terminated", timeout_s=90)
    await terminal.line(r"run 1 · ended: exit code 0")
    assert terminal.text.count(" sum 6") == 3


async def test_a_console_asks_the_ranks_of_all_pods(project: KubeProject) -> None:
    terminal = await project.loop("--all-pods", "python", "train.py")
    await terminal.line(r"all 3 ranks wait")
    lines = ("b train.py:8", "c", "p rank * 10", "cl", "c")
    said = (await project.tk("console", *(word for line in lines for word in ("-c", line)))).out
    assert re.search(r"^0 +0$\n^1 +10$\n^2 +20$", said, re.MULTILINE), said
    await terminal.line(r"run 1 · ended: exit code 0")
    await terminal.line(r"run 2 · all 3 ranks wait")
