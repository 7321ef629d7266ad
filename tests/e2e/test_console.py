"""`tk console` over real ranks: casts, steps, breakpoints, and an editor on the same rank."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.e2e.test_ranks import child
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import Project, line_of

PROGRAM = """\
    import os
    import time

    def step(number):
        doubled = number * 2
        return doubled

    rank = int(os.environ["SLURM_PROCID"])
    total = 0
    for number in range(3):
        total += step(number + rank)
    print(f"rank {rank} done: {total}", flush=True)
    """
DOUBLED = line_of(PROGRAM, "doubled = number * 2")
RETURN = line_of(PROGRAM, "return doubled")
ADDS = line_of(PROGRAM, "total += step")


@pytest.fixture
async def four_ranks(project: Project) -> Project:
    project.write("train.py", PROGRAM)
    await project.up("--nodes", "2", "--cpus", "4")
    terminal = await project.loop("srun", "-n", "4", "python", "train.py")
    await terminal.line("all 4 ranks wait")
    return project


async def console(project: Project, *lines: str, code: int = 0) -> list[Any]:
    """The answers of a console that is given these lines."""
    words = [word for line in lines for word in ("-c", line)]
    done = await project.tk("console", "--json", *words, code=None)
    assert done.code == code, f"{done}\n{project.session_log()}"
    answers: list[Any] = json.loads(done.out)
    return answers


def texts(answer: Any) -> list[tuple[list[int], str]]:
    return [(one["ranks"], one["text"]) for one in answer["answers"]]


async def test_a_script_waits_for_ranks_that_start_late(project: Project) -> None:
    project.write("train.py", PROGRAM)
    project.write("late.sh", "[ $SLURM_PROCID = 0 ] || sleep 3; exec python train.py\n")
    await project.up("node1", "--cpus", "2")
    terminal = await project.loop("srun", "-n", "2", "sh", "late.sh")
    [_, values] = await console(project, "b train.py:" + str(DOUBLED), "c")
    assert [rank for ranks, _ in texts(values) for rank in ranks] == [0, 1]
    await terminal.quit()


async def test_a_breakpoint_a_cast_and_steps_without_any_editor(four_ranks: Project) -> None:
    project = four_ranks
    [_, _, values, which, moved, place] = await console(
        project, f"b train.py:{DOUBLED}", "c", "p number", "p len('ab')", "n", "p doubled"
    )
    # Each rank has its own; equal answers are one.
    assert sorted(text for _, text in texts(values)) == ["0", "1", "2", "3"]
    assert texts(which) == [([0, 1, 2, 3], "2")]
    assert [ranks for ranks, _ in texts(moved)] == [[0, 1, 2, 3]]
    assert f"train.py:{RETURN}" in texts(moved)[0][1]
    assert sorted(text for _, text in texts(place)) == ["0", "2", "4", "6"]
    # As people of the seed type them.
    [cast, _, one] = await console(project, "cast ranks(1:3) p number", "attach 3", "w")
    assert texts(cast) == [([1], "1"), ([2], "2")]
    assert f"> train.py:{RETURN}" in texts(one)[0][1]
    [error] = await console(project, "p nothing", code=0)
    assert texts(error) == [([0, 1, 2, 3], "*** NameError: name 'nothing' is not defined")]
    # What comes after it was meant for other ranks.
    [refused] = await console(project, "on 9", "c", code=2)
    assert "9" in refused["refusal"]
    [refused] = await console(project, "cast ranks(9) p 1", code=2)
    assert "9" in refused["refusal"] and not refused["answers"]
    assert all(one["state"] == "stopped" for one in (await ranks_of(project)))
    done = await project.tk("console", "-c", "p 6 * 7")
    assert (done.out.split(), done.err) == (["0-3", "42"], "")
    done = await project.tk("console", code=2)
    assert "no lines" in done.err


async def ranks_of(project: Project) -> list[Any]:
    found: list[Any] = (await project.tk("ranks", "--json")).json["ranks"]
    return found


async def test_all_ranks_run_to_their_end_from_the_console(project: Project) -> None:
    project.write("train.py", PROGRAM)
    await project.up("--cpus", "4")
    terminal = await project.loop("srun", "-n", "4", "python", "train.py")
    await terminal.line("all 4 ranks wait")
    await console(project, "c")
    await terminal.line(r"run 1 · ended: exit code 0")
    assert terminal.text.count(" done: ") == 4
    # The loop goes on, and the next run waits for a console again.
    await terminal.line(r"run 2 .*armed")
    assert {one["state"] for one in await ranks_of(project)} == {"waiting"}


async def test_an_editor_and_a_console_on_the_same_ranks(four_ranks: Project) -> None:
    project = four_ranks
    editor = await project.f5(ADDS, file="train.py")
    others = [await child(project, editor, ADDS) for _ in range(3)]
    sessions = {0: editor, **{rank: session for rank, _, session in others}}
    stops = {rank: await session.stopped(60) for rank, session in sessions.items()}
    # The console sees what the editor has stopped, and the editor what the console does.
    [place, value, moved] = await console(project, "p total", "p number", "s")
    assert texts(place) == [([0, 1, 2, 3], "0")]
    assert texts(value) == [([0, 1, 2, 3], "0")]
    assert f"train.py:{DOUBLED}" in texts(moved)[0][1]
    frames = {rank: (await session.stopped(60))[1] for rank, session in sessions.items()}
    assert {frame["line"] for frame in frames.values()} == {DOUBLED}
    assert await sessions[2].evaluate("number", frames[2]) == "2"
    # Breakpoints of both hold in one file, and each is answered about its own.
    # The outer `c` would take them away again, as that of the seed.
    await console(project, f"b train.py:{RETURN}", "cast ranks(:) c", "p 1")
    for session in sessions.values():
        _, frame = await session.stopped(60)
        assert frame["line"] == RETURN
    source = stops[0][1]["source"]
    answer = await editor.request("setBreakpoints", source=source, breakpoints=[{"line": ADDS}])
    assert [one["line"] for one in answer["breakpoints"]] == [ADDS]


async def test_the_editor_leaves_and_the_console_keeps_the_program(project: Project) -> None:
    project.write("train.py", PROGRAM)
    await project.up()
    terminal = await project.loop("srun", "-n", "1", "python", "train.py")
    editor = await project.f5(DOUBLED, file="train.py")
    await editor.stopped(60)
    async with on_a_terminal(project, "console") as screen:
        await screen.shows(r"\(tk 0 · node1\)")
        await editor.request("disconnect")
        await editor.drop()
        screen.type("p 6 * 7\r")
        await screen.shows(r"42")
        screen.type("c\r")
        await terminal.line(r"run 1 · ended: exit code 0")
        await screen.shows(r"new run|waits for a debugger|wait for a debugger")
        screen.type("q\r")
        assert await screen.process.wait() == 0


async def test_what_a_rank_does_not_say_is_seen(project: Project) -> None:
    """An editor's F5 sends no event where nothing stops, and a killed rank says no goodbye."""
    project.write("train.py", PROGRAM.replace("range(3)", "range(10**9)"))
    await project.up("node1", "--cpus", "2")
    terminal = await project.loop("srun", "-n", "2", "--kill-on-bad-exit=0", "python", "train.py")
    await terminal.line("all 2 ranks wait")
    async with on_a_terminal(project, "console") as screen:
        await screen.shows("2 waiting")
        never = line_of(PROGRAM, "print(f")
        editor = await project.f5(never, file="train.py")
        await child(project, editor, never)
        screen.type("list -a\r")
        await screen.shows(r"\n *0 .* running\r?\n *1 .* running\r?\n")
        rank = next(one for one in await ranks_of(project) if one["rank"] == 1)
        os.kill(rank["pid"], signal.SIGKILL)
        await screen.shows("rank 1 .*ended")
        screen.type("list -a\r")
        await screen.shows(r"\n *0 .* running\r?\n *1 .* ended")
        screen.type("q\r")
        assert await screen.process.wait() == 0
    await terminal.quit()
