"""`--post-mortem` with ranks: those that fail are kept, and no launcher ends the others."""

from __future__ import annotations

import re
from typing import Any

from tests.e2e.test_console import console, texts
from tests.e2e.test_where_ranks_are import needs_torch, until
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project, line_of

#: Rank 2 fails, while the others wait for it in a collective.
TORCH = """\
    import torch
    import torch.distributed as dist

    def low(key):
        secret = 42
        return {}[key]

    def load(rank):
        try:
            low("missing")
        except KeyError as error:
            raise ValueError(f"bad rank {rank}") from error

    def train():
        rank = dist.get_rank()
        if rank == 2:
            load(rank)
        dist.all_reduce(torch.ones(1))

    dist.init_process_group("gloo")
    train()
    """
RAISES = line_of(TORCH, "raise ValueError")

#: Ranks 1 and 3 fail at the same place, with other texts; the others go on once they may.
SRUN = """\
    import os
    import sys
    import time

    def load(rank):
        raise ValueError(f"bad rank {rank}")

    def wait():
        while not os.path.exists("go"):
            time.sleep(0.01)

    rank = int(os.environ["SLURM_PROCID"])
    if "exit" in sys.argv:
        sys.exit(3)
    if "interrupt" in sys.argv:
        raise KeyboardInterrupt
    if rank % 2:
        load(rank)
    wait()
    """
LOAD = line_of(SRUN, "raise ValueError")


async def failed(project: Project, *ranks: int) -> list[Any]:
    """The failed ranks, once it is these."""
    answer = await until(
        project,
        lambda one: [each["rank"] for each in one["ranks"] if each["failure"]] == list(ranks),
    )
    found: list[Any] = [one for one in answer["ranks"] if one["failure"]]
    return found


@needs_torch
async def test_a_failed_rank_of_torchrun_is_kept_with_all_the_others(project: Project) -> None:
    project.write("train.py", TORCH)
    await project.up("--cpus", "4")
    terminal = await project.loop(
        "--post-mortem", "torchrun", "--standalone", "--nproc-per-node", "4", "train.py"
    )
    async with on_a_terminal(project, "console") as screen:
        await screen.shows(r"`c` lets them run")
        screen.type("c\r")
        # One line, above the prompt.
        await screen.shows(rf"rank 2 · node1 failed: ValueError: bad rank 2 \(train.py:{RAISES}\)")
        await screen.shows(r"kept for you: on 2")
        screen.type("q\r")
        assert await screen.process.wait() == 0
    [one] = await failed(project, 2)
    assert one["failure"]["type"] == "ValueError" and one["failure"]["text"] == "bad rank 2"
    assert (one["frames"][-1]["line"], one["frames"][-1]["function"]) == (RAISES, "load")
    # The launcher has ended nobody: the others wait in the collective.
    answer = await until(project, lambda one: one["arrivals"])
    assert [one["state"] for one in answer["ranks"]].count("running") == 3
    text = (await project.tk("ranks")).out
    assert re.search(rf"2 +1 +train.py:{RAISES} load +failed.*: ValueError: bad rank 2", text)
    [_, where, value, up, chained, listed] = await console(
        project, "on failed", "w", "p rank", "u 9", "p secret", "list failed"
    )
    assert f"> train.py:{RAISES}" in texts(where)[0][1]
    assert "chained exception: 'missing'" in texts(where)[0][1]
    assert texts(value) == [([2], "2")]
    assert "low" in texts(up)[0][1] and "chained exception" in texts(up)[0][1]
    assert texts(chained) == [([2], "42")]
    assert "failed" in texts(listed)[0][1]
    # It dies as it would have: torchrun sees that and ends the others.
    done = await project.tk("console", "-c", "cast ranks(failed) c", code=None)
    assert "runs on" in done.out
    await terminal.line(r"ValueError: bad rank 2")
    await terminal.line(r"run 1 · ended: exit code 1")
