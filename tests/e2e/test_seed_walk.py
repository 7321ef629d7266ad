"""The walk of the seed: the lines of Monarch's tutorial, typed on a terminal, at real ranks."""

from __future__ import annotations

from tests.support.console_rig import console, shown, typed
from tests.support.pty_terminal import Screen
from tests.support.tkrig import Project, line_of

PROGRAM = """\
    import os
    import random

    def inner_function(rank):
        x = random.randint(0, 1000)
        return rank + x

    def to_debug():
        rank = int(os.environ["SLURM_PROCID"])
        breakpoint()
        rank = inner_function(rank)
        return rank + 1

    print("returned", to_debug(), flush=True)
    """
CALL = line_of(PROGRAM, "rank = inner_function(rank)")
RANDOM = line_of(PROGRAM, "x = random")
SUM = line_of(PROGRAM, "return rank + x")
HERE = rf"actors\.py:{CALL} to_debug +stopped"


async def test_the_walk_as_typed_there(project: Project) -> None:
    project.write("actors.py", PROGRAM)
    await project.up("--nodes", "2", "--cpus", "4")
    terminal = await project.loop("srun", "-n", "4", "python", "actors.py")
    async with console(project) as screen:
        await screen.shows(r"4 ranks wait for a debugger")
        screen.type("c\r")
        await _all_stop(screen)
        await _attaches_and_steps(screen)
        await _casts(screen)
        await typed(screen, "help", r" *cast ")
        await typed(screen, "continue", r"[0-9,-]+ +runs on")
        # Those that have not ended by then are left as they are.
        await terminal.line(r"run 1 · ended: exit code 0")
        screen.type("quit\r")
        assert await screen.ended() == 0
    assert terminal.text.count("returned ") == 4


async def _all_stop(screen: Screen) -> None:
    """All four stop, in one line or, on a busy machine, one after another."""
    stopped: set[int] = set()
    while len(stopped) < 4:
        match = await shown(screen, r"ranks? ([0-9,-]+) stopped: actors\.py")
        for part in match[1].split(","):
            first, _, last = part.partition("-")
            stopped |= set(range(int(first), int(last or first) + 1))


async def _attaches_and_steps(screen: Screen) -> None:
    """`attach debugee 3`, `s`, `n`, `x`, `detach`, and back to what it has said last."""
    await typed(screen, "list", rf"A +0-3 +4 +{HERE}")
    await typed(
        screen,
        "attach debugee 3",
        rf"3 · node2 · stopped at actors\.py:{CALL} to_debug +rank = inner_function\(rank\)$",
    )
    await typed(screen, "s", rf"actors\.py:{RANDOM} inner_function +x = random\.randint")
    await typed(screen, "n", rf"actors\.py:{SUM} inner_function +return rank \+ x$")
    [value] = await typed(screen, "x", r"(\d+)$")
    await typed(screen, "detach", r"lines go to 0-3$")
    await typed(
        screen,
        "list",
        rf"A +0-2 +3 +{HERE}",
        rf"B +3 +1 +actors\.py:{SUM} inner_function +stopped",
    )
    await typed(screen, "attach debugee 3", r"3 · node2 · stopped at", rf"{value[1]}$")
    # Back to all by itself, as there: its program ends.
    await typed(screen, "continue", r"rank 3: ended\. Lines go to 0-2 now$")


async def _casts(screen: Screen) -> None:
    """A cast with each form of a selection; its answers are shown, unlike there."""
    there = r"to_debug +return rank \+ 1$"
    await typed(screen, "cast debugee ranks(0) p rank", r"ranks\(0\) +1 rank$", r"0$")
    await typed(screen, "cast debugee ranks(0,1) n", r"0-1 +actors\.py:\d+ " + there)
    await typed(screen, "cast debugee ranks(1:3:1) p rank < 0", r"1-2 +False$")
    await typed(
        screen,
        "cast debugee ranks(2:7:2) s",
        rf"(?:2 +)?actors\.py:{RANDOM} inner_function",
    )
    await typed(screen, "cast debugee ranks(:) p rank < 0", r"0-2 +False$")
    await typed(screen, "cast debugee ranks(hosts=0, gpus=1:) p rank * 0", r"(?:1 +)?0$")
    await typed(screen, "cast debugee ranks(hosts=1:) p rank", r"(?:2 +)?2$")
    await typed(
        screen,
        "list",
        r"A +0-1 +2 +actors\.py:\d+ to_debug +stopped",
        rf"B +2 +1 +actors\.py:{RANDOM} inner_function +stopped",
    )
