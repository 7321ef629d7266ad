"""`tk loop LAUNCHER ...`: one F5 is on all ranks, on every node of the allocation."""

from __future__ import annotations

import asyncio
import importlib.util
import time

import pytest

from tests.support.tkrig import Project, Terminal, eventually, line_of
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.errors import DebugError

PROGRAM = """\
    import os
    import time
    rank = int(os.environ["SLURM_PROCID"])
    total = 0
    for step in range(3):
        total += step * rank
    print(f"rank {rank} done", flush=True)
    """
STOP = line_of(PROGRAM, "total += step * rank")
Message = dict[str, object]


@pytest.fixture
async def two_nodes(project: Project) -> Project:
    project.write("train.py", PROGRAM)
    await project.up("--nodes", "2", "--cpus", "4")
    return project


async def child(
    project: Project, parent: DapClient, stop: int = STOP
) -> tuple[int, str, DapClient]:
    """The session that an editor opens for the next announced rank: rank, name, client."""
    told = await parent.wait_event("debugpyAttach", timeout_s=60)
    session = await project.editor(int(told["connect"]["port"]) or None)
    await session.attach(
        {str(project.dir / "train.py"): [stop]},
        path_mappings=project.path_mappings,
        timeout_s=60,
        tkRank=told["tkRank"],
    )
    return int(told["tkRank"]), str(told["name"]), session


async def test_8_ranks_on_two_nodes_stop_at_one_breakpoint_and_step_apart(
    two_nodes: Project,
) -> None:
    project = two_nodes
    terminal = await project.loop("srun", "-n8", "python", "train.py")
    first = await project.f5(STOP, file="train.py")
    opened = await asyncio.gather(*(child(project, first) for _ in range(7)))
    sessions = {0: first, **{rank: session for rank, _, session in opened}}
    assert sorted(sessions) == list(range(8))
    names = {name for _, name, _ in opened}
    assert "rank 1 · node1" in names and "rank 7 · node2" in names

    async def stopped(rank: int) -> tuple[int, Message, float]:
        thread, frame = await sessions[rank].stopped(60)
        return thread, frame, time.monotonic()

    found = await asyncio.gather(*(stopped(rank) for rank in range(8)))
    for rank, (_, frame, _) in enumerate(found):
        assert frame["line"] == STOP
        assert await sessions[rank].evaluate("rank", frame) == str(rank)
    # One is stepped; the others stay where they are.
    await sessions[3].request("next", threadId=found[3][0])
    _, frame = await sessions[3].stopped()
    assert frame["line"] == STOP - 1
    for rank in (0, 1, 2, 4, 5, 6, 7):
        assert await sessions[rank].evaluate("step", found[rank][1]) == "0"
    source = found[0][1]["source"]
    for rank in range(8):
        await sessions[rank].request("setBreakpoints", source=source, breakpoints=[])
    await asyncio.gather(
        *(sessions[rank].finish(found[rank][0], timeout_s=60) for rank in range(8))
    )
    await terminal.line(r"run 1 · ended: exit code 0")
    assert terminal.text.count(" done") == 8
    await terminal.line(r"run 2 .*armed")


@pytest.mark.parametrize("goodbye", ["disconnect", "hangs up"])
async def test_rank_0_ends_first_and_the_others_stay_at_their_breakpoints(
    two_nodes: Project, goodbye: str
) -> None:
    """nvim-dap and dape leave a session as soon as it has ended."""
    project = two_nodes
    terminal = await project.loop("srun", "-n2", "python", "train.py")
    first = await project.f5(STOP, file="train.py")
    rank, _, second = await child(project, first)
    assert rank == 1
    thread, frame = await first.stopped(60)
    held, inner = await second.stopped(60)
    await first.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await first.request("continue", threadId=thread)
    await first.wait_event("terminated", timeout_s=60)
    if goodbye == "disconnect":
        await first.request("disconnect", restart=False)
    await first.close()
    # Another F5 is told what it waits for.
    with pytest.raises(DebugError, match=r"rank 0 .* has ended, while rank 1 .* still debugged"):
        await project.f5(STOP, file="train.py")
    assert await second.evaluate("rank", inner) == "1"
    await second.request("setBreakpoints", source=inner["source"], breakpoints=[])
    await second.finish(held, timeout_s=60)
    await terminal.line(r"run 1 · ended: exit code 0")


@pytest.mark.slow
async def test_only_some_ranks_are_debugged_and_the_others_run_free(two_nodes: Project) -> None:
    project = two_nodes
    terminal = await project.loop("--rank", "2", "srun", "-n4", "python", "train.py")
    editor = await project.f5(STOP, file="train.py")
    thread, frame = await editor.stopped(60)
    assert await editor.evaluate("rank", frame) == "2"
    stack = await editor.request("stackTrace", threadId=thread)
    assert [one["name"] for one in stack["stackFrames"]] == ["<module>"], "the program's alone"
    await eventually(lambda: terminal.text.count(" done") == 3, "ranks 0, 1 and 3 ran to their end")
    at_its_port = await project.editor(project.port + 2)
    with pytest.raises(DebugError, match="already debugging rank 2"):
        await at_its_port.attach({}, path_mappings=project.path_mappings)
    await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
    await editor.finish(thread)
    await terminal.line(r"run 1 · ended: exit code 0")


async def test_each_rank_has_a_port_of_its_own(two_nodes: Project) -> None:
    """As a compound launch configuration uses them: no session announces another."""
    project = two_nodes
    terminal = await project.loop("srun", "-n2", "python", "train.py")

    async def at(rank: int) -> DapClient:
        while True:
            try:
                editor = await project.editor(project.port + rank)
                break
            except OSError:
                await asyncio.sleep(0.05)
        await editor.attach(
            {str(project.dir / "train.py"): [STOP]},
            path_mappings=project.path_mappings,
            timeout_s=60,
            tkRank=rank,
        )
        return editor

    async def through(rank: int) -> None:
        editor = await at(rank)
        thread, frame = await editor.stopped(60)
        assert await editor.evaluate("rank", frame) == str(rank)
        assert not [one for one in editor.events if one.get("event") == "debugpyAttach"]
        await editor.request("setBreakpoints", source=frame["source"], breakpoints=[])
        await editor.finish(thread, timeout_s=60)

    await asyncio.gather(through(0), through(1))
    await terminal.line(r"run 1 · ended: exit code 0")


@pytest.mark.slow
async def test_the_editor_leaves_rank_0_and_all_begin_again(two_nodes: Project) -> None:
    project = two_nodes
    terminal: Terminal = await project.loop("srun", "-n4", "python", "train.py")
    for run in (1, 2):
        editor = await project.f5(STOP, file="train.py")
        await editor.stopped(60)
        await editor.close()
        await terminal.line(rf"run {run} · ended: .*editor left")
    await terminal.line(r"run 3 .*armed")


SLOW_END = """\
    import ctypes
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc.sleep, ctypes.c_void_p(7), None)
    print("last line", flush=True)
    """


@pytest.mark.slow
async def test_ranks_that_take_long_to_exit_are_not_ended(two_nodes: Project) -> None:
    """As torch's do on a busy node, after they have said goodbye to the debugger."""
    project = two_nodes
    project.write("train.py", SLOW_END)
    stop = line_of(SLOW_END, "last line")
    terminal = await project.loop("--rank", "0", "srun", "-n1", "python", "train.py")
    editor = await project.f5(stop, file="train.py")
    thread, _ = await editor.stopped(60)
    await editor.request("continue", threadId=thread)
    await editor.wait_event("terminated", timeout_s=60)
    await terminal.line(r"run 1 · ended: exit code 0")


GLOO = """\
    import datetime
    import os
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
    rank = dist.get_rank()
    mine = torch.ones(1) * (rank + 1)
    dist.all_reduce(mine)
    print(f"rank {rank} sum {mine.item():.0f}", flush=True)
    dist.destroy_process_group()
    """
GLOO_STOP = line_of(GLOO, "dist.all_reduce(mine)")
#: The process group gives up after 2 s by itself.
PAUSED_S = 5.0


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torchrun and gloo come with torch: scripts/setup --torch",
)
async def test_4_ranks_of_torchrun_and_a_pause_inside_a_collective(project: Project) -> None:
    """Three ranks wait in all_reduce for the one that is paused: its timeout kills none."""
    project.write("train.py", GLOO)
    await project.up("node1", "--cpus", "4")
    torchrun = ("python", "-m", "torch.distributed.run", "--standalone", "--log-dir", "logs")
    terminal = await project.loop(*torchrun, "--nproc-per-node", "4", "train.py")
    first = await project.f5(GLOO_STOP, file="train.py")
    opened = await asyncio.gather(*(child(project, first, GLOO_STOP) for _ in range(3)))
    sessions = {0: first, **{rank: session for rank, _, session in opened}}
    stops = {rank: await session.stopped(60) for rank, session in sessions.items()}
    for rank in (0, 1, 3):
        await sessions[rank].request("continue", threadId=stops[rank][0])
    # The very thing: time that passes at a breakpoint.
    await asyncio.sleep(PAUSED_S)
    assert " sum " not in terminal.text
    assert await sessions[2].evaluate("rank", stops[2][1]) == "2"
    await sessions[2].request("continue", threadId=stops[2][0])
    for session in sessions.values():
        await session.wait_event("terminated", timeout_s=60)
    await terminal.line(r"run 1 · ended: exit code 0")
    assert terminal.text.count(" sum 10") == 4
