"""`--post-mortem` with ranks: those that fail are kept, and no launcher ends the others."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest

from tests.e2e.test_console import console, texts
from tests.e2e.test_ranks import child
from tests.e2e.test_where_ranks_are import needs_torch, until
from tests.support import processes
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project, Terminal, eventually, line_of

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

    if os.environ.get("NEVER"):
        print("never")
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
NEVER = line_of(SRUN, 'print("never")')


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
    await terminal.line("all 4 ranks wait")
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
    # Its end may come before its answer.
    assert re.search(r"runs on|ended", done.out), done.out
    await terminal.line(r"ValueError: bad rank 2")
    await terminal.line(r"run 1 · ended: exit code 1")


KILLS = "--kill-on-bad-exit=1"


async def on_two_nodes(project: Project, *words: str, more: tuple[str, ...] = ()) -> Terminal:
    """more: options of the loop. KILLS among the words is srun's, the others are the program's."""
    project.write("train.py", SRUN)
    await project.up("--nodes", "2", "--cpus", "4")
    kills = (KILLS,) if KILLS in words else ()
    own = [one for one in words if one != KILLS]
    terminal = await project.loop(*more, "srun", *kills, "-n", "4", "python", "train.py", *own)
    await terminal.line("all 4 ranks wait")
    return terminal


@pytest.mark.slow
async def test_failures_of_srun_on_two_nodes_are_grouped_by_type_and_place(
    project: Project,
) -> None:
    terminal = await on_two_nodes(project, KILLS, more=("--post-mortem",))
    async with on_a_terminal(project, "console") as screen:
        await screen.shows(r"`c` lets them run")
        screen.type("c\r")
        await screen.shows(rf"failed: ValueError: bad rank [13] \(train.py:{LOAD}\)")
        await failed(project, 1, 3)
        screen.type("list\r")
        await screen.shows(rf"1,3 +2 +train.py:{LOAD} load +failed.*: ValueError: bad rank 1")
        # Nobody has ended: not even that launcher, which is to end all when one does.
        screen.type("on failed\r")
        await screen.shows(r"\(tk 1,3\)")
        screen.type("p rank\r")
        await screen.shows(r"1 +1")
        screen.type("on 3\r")
        await screen.shows(r"3 · node2 · failed: ValueError: bad rank 3")
        screen.type("c\r")
        await screen.shows(r"rank 3 ended with exit code 1")
    await terminal.line(r"ValueError: bad rank 3")
    await terminal.line(r"run 1 · ended: exit code 1")


async def test_a_rank_that_nobody_watches_is_kept_and_an_editor_sees_it(
    project: Project,
) -> None:
    terminal = await on_two_nodes(project, more=("--post-mortem",))
    await console(project, "c")
    # That console has left before any rank came to its exception, or after: it does not matter.
    for one, node in zip(await failed(project, 1, 3), ("node1", "node2"), strict=True):
        assert one["node"] == node
    project.remote("go").touch()
    # The launcher waits for the two that are kept.
    answer = await until(
        project, lambda one: [each["state"] for each in one["ranks"]].count("ended") == 2
    )
    assert {one["state"] for one in answer["ranks"]} == {"stopped", "ended"}
    [rank] = [one for one in (await project.status())["loops"][0]["ranks"] if one["rank"] == 3]
    editor = await project.editor(rank["port"])
    await editor.attach({}, path_mappings=project.path_mappings, timeout_s=60)
    thread, frame = await editor.stopped(60)
    assert (frame["name"], frame["line"]) == ("load", LOAD)
    assert await editor.evaluate("rank", frame) == "3"
    # It leaves again: as it has seen the exception, the rank ends.
    await editor.request("continue", threadId=thread)
    await terminal.line(r"ValueError: bad rank 3")


async def test_an_editor_on_the_ranks_stops_there_and_the_console_sees_it(
    project: Project,
) -> None:
    terminal = await on_two_nodes(project, more=("--post-mortem",))
    editor = await project.f5(NEVER, file="train.py")
    sessions = [await child(project, editor, NEVER) for _ in range(3)]
    by_rank = {rank: session for rank, _, session in sessions}
    found = await failed(project, 1, 3)
    assert [one["failure"]["text"] for one in found] == ["bad rank 1", "bad rank 3"]
    for rank in (1, 3):
        _, frame = await by_rank[rank].stopped(60)
        assert (frame["name"], frame["line"]) == ("load", LOAD)
    [where] = await console(project, "cast ranks(failed) p rank")
    assert texts(where) == [([1], "1"), ([3], "3")]
    # An editor that leaves takes nothing from the console, nor ends the rank.
    async with on_a_terminal(project, "console", "3") as screen:
        await screen.shows(r"failed.*: ValueError: bad rank 3")
        await by_rank[3].request("disconnect")
        await by_rank[3].drop()
        screen.type("p rank * 2\r")
        await screen.shows(r"6")
    await terminal.quit()


@pytest.mark.slow
@pytest.mark.parametrize("word", ["exit", "interrupt"])
async def test_an_end_as_the_program_wants_it_is_no_failure(project: Project, word: str) -> None:
    terminal = await on_two_nodes(project, word, more=("--post-mortem",))
    await console(project, "c")
    await terminal.line(r"run 1 · ended: (exit code 3 )?")
    assert "kept at" not in terminal.text
    if word == "exit":
        assert "Exited with exit code 3" in terminal.text


@pytest.mark.slow
async def test_without_the_flag_a_rank_ends_and_the_console_names_its_exit_code(
    project: Project,
) -> None:
    terminal = await on_two_nodes(project, KILLS)
    async with on_a_terminal(project, "console") as screen:
        await screen.shows(r"`c` lets them run")
        screen.type("c\r")
        await screen.shows(r"ranks? (1|3|1,3) ended with exit code 1")
    await terminal.line(r"run 1 · ended: ")
    assert "failed" not in screen.text


@pytest.mark.slow
async def test_kept_ranks_end_with_ctrl_c_and_with_tk_down(project: Project) -> None:
    terminal = await on_two_nodes(project, more=("--post-mortem",))
    await console(project, "c")
    pids = [one["pid"] for one in await failed(project, 1, 3)]
    await terminal.line(
        rf"rank [13] · node[12] kept at ValueError: bad rank [13] \(train.py:{LOAD}\)"
    )
    terminal.interrupt()
    await terminal.line(r"run 1 · ended: .*restarted by you")
    await terminal.line(r"run 2 .*armed")
    assert not any(map(processes.is_alive, pids))
    await console(project, "c")
    pids = [one["pid"] for one in await failed(project, 1, 3)]
    await project.tk("down")
    await eventually(lambda: not any(map(processes.is_alive, pids)), "they have ended")


#: Fails once it may, so that its editor can leave first.
LATER = """\
    import os
    import time

    def work(numbers):
        total = sum(numbers)
        raise ValueError(f"bad {total}")

    print("begins", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    work([1, 2])
    """


@pytest.mark.slow
async def test_a_rank_that_its_editor_has_left_is_kept_without_any(project: Project) -> None:
    project.write("later.py", LATER)
    await project.up()
    terminal = await project.loop("--post-mortem", "srun", "-n", "1", "python", "later.py")
    editor = await project.f5(line_of(LATER, "total ="), file="later.py")
    await terminal.line("begins")
    await editor.request("disconnect")
    await editor.drop()
    project.remote("go").touch()
    # Its breakpoint has gone with the editor; the exception has not.
    [one] = await failed(project, 0)
    assert one["failure"]["text"] == "bad 3"
    [value, _] = await console(project, "p total", "c")
    assert texts(value) == [([0], "3")]
    await terminal.line(r"ValueError: bad 3")
    await terminal.line(r"run 1 · ended: exit code 1")


@pytest.mark.slow
async def test_the_console_keeps_a_program_by_itself_too(project: Project) -> None:
    project.write("later.py", LATER)
    await project.up()
    terminal = await project.loop("--post-mortem", "python", "later.py")
    project.remote("go").touch()
    async with on_a_terminal(project, "console") as screen:
        await screen.shows(r"`c` lets it run")
        screen.type("c\r")
        await screen.shows(r"failed: ValueError: bad 3 \(later.py:6\)")
        screen.type("p numbers\r")
        await screen.shows(r"\[1, 2\]")
        screen.type("c\r")
        await screen.shows(r"ended with exit code 1")
    await terminal.line(r"run 1 · ended: exit code 1")


@pytest.mark.slow
async def test_failed_ranks_are_still_kept_after_a_killed_session(project: Project) -> None:
    await on_two_nodes(project, more=("--post-mortem",))
    await console(project, "c")
    before = [one["pid"] for one in await failed(project, 1, 3)]
    os.kill((await project.status())["pid"], signal.SIGKILL)
    await project.up("--nodes", "2", "--cpus", "4")
    found = await failed(project, 1, 3)
    assert [one["pid"] for one in found] == before
    assert [one["failure"]["text"] for one in found] == ["bad rank 1", "bad rank 3"]
    [values] = await console(project, "cast ranks(failed) p rank")
    assert texts(values) == [([1], "1"), ([3], "3")]
