"""`tk ranks`: the rank that hangs a job is named, and no rank is stopped for it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_ranks import child
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project, Terminal, eventually, line_of
from tunnelkit.demo.dap_client import DapClient

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torchrun and gloo come with torch: pip install torch==2.13.0+cpu",
)

#: Rank 2 does not come to the fourth collective.
HANG = """\
    import os
    import time
    import torch
    import torch.distributed as dist

    def load(step):
        while step == 3 and dist.get_rank() == 2 and not os.path.exists("go"):
            time.sleep(0.01)

    def train():
        total = torch.ones(1)
        for step in range(5):
            load(step)
            dist.all_reduce(total)

    if os.environ.get("NEVER"):
        print("never")
    dist.init_process_group("gloo")
    train()
    """
NEVER = line_of(HANG, 'print("never")')

#: Each rank is somewhere else, by its number.
SPREAD = """\
    import ctypes
    import os
    import time

    def spin():
        while True:
            pass

    def native():
        # It keeps the GIL, as a library may.
        ctypes.PyDLL(None).usleep(ctypes.c_uint(600_000_000))

    def wait():
        while True:
            time.sleep(600)

    if os.environ.get("NEVER"):
        print("never")
    rank = int(os.environ["SLURM_PROCID"])
    open(f"begun{rank}", "w").close()
    {1: spin, 2: native}.get(rank, wait)()
    """


#: Rank 2 does not start Python for now.
WRAPPER = """\
    while [ "$SLURM_PROCID" = 2 ] && [ ! -e go ]; do sleep 0.1; done
    exec python train.py
    """


async def debugged(project: Project, ranks: int, file: str, stop: int) -> list[DapClient]:
    """An editor's session for each rank; all of them run."""
    first = await project.f5(stop, file=file)
    opened = await asyncio.gather(*(child(project, first, stop) for _ in range(ranks - 1)))
    return [first, *(one for _, _, one in opened)]


async def looked(project: Project, *args: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await project.tk("ranks", "--json", *args)).json
    return answer


async def until(project: Project, condition: Any) -> dict[str, Any]:
    """Ask again until it is so."""
    ends = time.monotonic() + 60
    while not condition(answer := await looked(project)):
        assert time.monotonic() < ends, answer
        await asyncio.sleep(0.3)
    return answer


async def end(project: Project, terminal: Terminal) -> None:
    (project.remote() / "go").touch()
    await terminal.line(r"run 1 · ended: exit code 0")


@needs_torch
async def test_the_rank_that_has_not_come_is_named(project: Project) -> None:
    project.write("train.py", HANG)
    await project.up("--cpus", "4")
    terminal = await project.loop("torchrun", "--standalone", "--nproc-per-node", "4", "train.py")
    waiting = await looked(project)
    assert [one["state"] for one in waiting["classes"]] == ["waiting"]
    await debugged(project, 4, "train.py", NEVER)
    answer = await until(project, lambda one: one["arrivals"])
    [arrival] = answer["arrivals"]
    assert (arrival["operation"], arrival["sequence"]) == ("all_reduce", 4)
    assert arrival["arrived"] == [0, 1, 3]
    assert [one["rank"] for one in arrival["late"]] == [2]
    text = (await project.tk("ranks")).out
    assert "rank 2 has not reached all_reduce #4" in text
    await seen_twice(project, "rank 2 has not reached all_reduce #4")
    waits = line_of(HANG, "dist.all_reduce")
    assert re.search(rf"^A +0-1,3 +3 +train.py:{waits} train > all_reduce +waits", text, re.M)
    assert re.search(r"^B +2 +1 +train.py:8 load", text, re.M)
    # The stack of the odd one, with the laptop's source.
    assert "time.sleep(0.01)" in text
    each = (await project.tk("ranks", "--all", "2")).out.splitlines()
    assert len(each) == 2 and each[1].split()[:2] == ["2", "node1"]
    # It was never stopped: it answers, stops when asked to, and ends once it may.
    lines = ("on 2", "pause", "p step", "c")
    argv = [word for line in lines for word in ("-c", line)]
    inside = (await project.tk("console", *argv)).out
    assert re.search(r"^3$", inside, re.M), inside
    picture(f"$ tk ranks\n{text}\n$ tk {shlex.join(('console', *argv))}\n{inside}")
    await end(project, terminal)


async def seen_twice(project: Project, late: str) -> None:
    """On a terminal the places are there at once; a second later the whole list replaces them."""
    async with on_a_terminal(project, "ranks") as screen:
        await screen.shows("4 ranks on 1 node")
        await screen.shows("asking again")
        await screen.shows(late)
        assert await screen.ended() == 0
    first, replaced, last = re.split(r"\x1b\[(\d+)A\r\x1b\[J", screen.raw)
    assert first.count("\n") == int(replaced)
    assert late in last and "asking again" not in last


def picture(text: str) -> None:
    """Make the picture of docs/ranks.md (`scripts/docs pictures`)."""
    if folder := os.environ.get("TK_SCREENSHOTS"):
        from scripts.docslib.pictures import terminal

        terminal(text, Path(folder) / "ranks-hang.svg")


@pytest.mark.slow
async def test_a_spinning_a_native_and_a_stopped_rank_are_told_apart(project: Project) -> None:
    project.write("spread.py", SPREAD)
    await project.up("--nodes", "2", "--cpus", "2")
    terminal = await project.loop("srun", "-n", "4", "python", "spread.py")
    await debugged(project, 4, "spread.py", line_of(SPREAD, 'print("never")'))
    begun = [project.remote() / f"begun{rank}" for rank in range(4)]
    await eventually(lambda: all(one.exists() for one in begun), "all have begun")
    pids = {one["rank"]: one["pid"] for one in (await looked(project))["ranks"]}
    os.kill(pids[3], signal.SIGSTOP)
    try:
        began = time.monotonic()
        answer = await until(
            project, lambda one: len({rank["state"] for rank in one["ranks"]}) == 2
        )
        took_s = time.monotonic() - began
        text = (await project.tk("ranks")).out
    finally:
        os.kill(pids[3], signal.SIGCONT)
    assert took_s < 20
    states = {one["rank"]: one for one in answer["ranks"]}
    assert {rank: one["state"] for rank, one in states.items()} == {
        0: "running",
        1: "running",
        2: "silent",
        3: "silent",
    }
    assert states[3]["process"]["letter"] == "T"
    assert states[2]["process"]["letter"] == "S"
    assert {one["node"] for one in answer["ranks"]} == {"node1", "node2"}
    assert "2 of 4 answered" in text
    assert "computes or polls" in text and "stopped by a signal" in text
    assert re.search(r"spread.py:\d+ wait", text)
    await terminal.quit()


@pytest.mark.slow
async def test_a_rank_whose_wrapper_hangs_is_named(project: Project) -> None:
    project.write("train.py", HANG)
    project.write("wrap.sh", WRAPPER)
    await project.up("--cpus", "4")
    terminal = await project.loop("srun", "-n", "4", "sh", "wrap.sh")
    answer = await until(project, lambda one: len(one["ranks"]) == 3)
    assert (answer["total"], answer["answered"], answer["absent"]) == (4, 3, [2])
    lines = (await project.tk("ranks")).out.splitlines()
    assert lines[0].startswith("3 of 4 ranks on 1 node") and "3 of 4 answered" in lines[0]
    assert lines[1] == "rank 2 has not dialled in"
    (project.remote() / "go").touch()
    await until(project, lambda one: (one["total"], one["absent"]) == (4, []))
    await terminal.quit()


@pytest.mark.slow
async def test_what_cant_be_asked_is_refused_in_one_line(project: Project) -> None:
    await project.up()
    done = await project.tk("ranks", code=None)
    assert done.code == 10 and "no debug loop is running" in done.err
    done = await project.tk("ranks", "0-", code=None)
    assert done.code == 2 and done.err.count("\n") == 1
    await project.loop("python", "2.py")
    done = await project.tk("ranks", "7", code=None)
    assert done.code == 2 and "no rank 7" in done.err
    assert "waits for a debugger" in (await project.tk("ranks")).out
