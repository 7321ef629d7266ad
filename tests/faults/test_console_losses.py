"""A console, its session, its link or a rank is lost in the middle of a cast."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.support import processes
from tests.support.console_rig import (
    ADDS,
    LOOP,
    TENS,
    all_marked,
    console,
    console_at_the_stop,
    looping,
    marks,
    shown,
    typed,
)
from tests.support.terminal import Terminal
from tests.support.tkrig import Project, eventually
from tunnelkit import lab as tk_lab
from tunnelkit.lab import LabInfo


async def states(project: Project) -> dict[int, str]:
    """The ranks' states, as `tk ranks` finds them."""
    ranks = (await project.tk("ranks", "--json")).json["ranks"]
    return {one["rank"]: one["state"] for one in ranks}


async def pids(project: Project) -> dict[int, int]:
    ranks = (await project.tk("ranks", "--json")).json["ranks"]
    return {one["rank"]: one["pid"] for one in ranks}


@pytest.mark.logins(3)
async def test_a_link_that_is_cut_in_a_cast_loses_and_doubles_nothing(
    project: Project, healed: LabInfo
) -> None:
    await looping(project, 2)
    async with console_at_the_stop(project, 2) as screen:
        # All ranks are at work when it breaks, and answer over the next link.
        screen.type("cast ranks(:) mark('a', 2)\r")
        await all_marked(project, "a", 2)
        processes.kill(project.ssh_processes())
        await shown(screen, r"0-1 +'marked a'$")
        # There is no link when it is typed.
        tk_lab.cut(healed.dir)
        processes.kill(project.ssh_processes())
        await shown(screen, "the link to the cluster is cut")
        screen.type("cast ranks(:) mark('b')\r")
        await shown(screen, r"0-1 +did not answer in 10 s: the link to the cluster is cut$")
        assert marks(project, "b", 2) == ["", ""]
        tk_lab.heal(healed.dir)
        await shown(screen, "the link to the cluster is back")
        for _ in range(2):
            await shown(screen, r"rank [01], late, to cast ranks\(:\) mark\('b'\): 'marked b'$")
        await typed(screen, "n", rf"0-1 +ranks\.py:{ADDS}")
        screen.type("q\r")
        assert await screen.ended() == 0
    assert marks(project, "a", 2) == marks(project, "b", 2) == ["x", "x"]
    assert await states(project) == {0: "stopped", 1: "stopped"}


async def test_a_console_or_a_rank_that_is_killed_in_a_cast(project: Project) -> None:
    terminal = await looping(project, 3)
    async with console_at_the_stop(project, 3) as screen:
        await typed(screen, f"b ranks.py:{TENS}", r"0-2 +Breakpoint 1 at")
        screen.type("cast ranks(:) mark('a', 2)\r")
        await all_marked(project, "a", 3)
        os.kill(screen.process.pid, signal.SIGKILL)
        await screen.ended()
    assert await states(project) == dict.fromkeys(range(3), "stopped")
    async with console(project) as screen:
        await screen.shows("3 stopped")
        # Its breakpoint has gone with it: nothing stops the third line.
        await typed(screen, f"b ranks.py:{ADDS}", r"0-2 +Breakpoint 1 at")
        await typed(screen, "cast ranks(:) c", r"ranks 0-2 stopped: ranks\.py")
        await typed(screen, "cast ranks(:) c", rf"ranks 0-2 stopped: ranks\.py:{ADDS} ")
        assert marks(project, "a", 3) == ["x"] * 3
        # The rank is another process from then on, or none.
        of_rank = await pids(project)
        screen.type("cast ranks(:) mark('b', 4)\r")
        await all_marked(project, "b", 3)
        os.kill(of_rank[1], signal.SIGKILL)
        await shown(screen, r"1 +ended$")
        await shown(screen, r"0,2 +'marked b'$")
        await shown(screen, r"2 of 3 answered$")
        assert marks(project, "b", 3) == ["x"] * 3
        screen.type("q\r")
        assert await screen.ended() == 0
    assert await terminal.quit() == 0


@pytest.mark.slow
async def test_a_rank_that_a_signal_stops_in_a_cast_and_ctrl_c(project: Project) -> None:
    await looping(project, 2)
    async with console_at_the_stop(project, 2) as screen:
        of_rank = await pids(project)
        await typed(screen, "p total", "0-1 +0$")
        os.kill(of_rank[1], signal.SIGSTOP)
        try:
            screen.type("cast ranks(:) mark('a')\r")
            await shown(screen, r"0 +'marked a'$")
            screen.type("\x03")
            await shown(screen, r"1 +has not answered yet$")
            await shown(screen, r"1 of 2 answered$")
            await typed(screen, "cast ranks(0) p total", "0$")
        finally:
            os.kill(of_rank[1], signal.SIGCONT)
        await shown(screen, r"rank 1, late, to cast ranks\(:\) mark\('a'\): 'marked a'$")
        screen.type("q\r")
        assert await screen.ended() == 0
    assert marks(project, "a", 2) == ["x", "x"]
    assert await states(project) == {0: "stopped", 1: "stopped"}


async def runs_to_its_end(project: Project, terminal: Terminal) -> None:
    """A new console lets all ranks run on."""
    done = await project.tk("console", "-c", "cast ranks(:) c")
    # The answer shows the end of a program that is quicker than it.
    assert re.search(r"^0-1 +(runs on|ended)", done.out, re.MULTILINE), done.out
    await terminal.line(r"run 1 · ended: exit code 0")


async def test_a_session_that_is_killed_in_a_cast(project: Project) -> None:
    terminal = await looping(project, 2)
    pid = (await project.status())["pid"]
    async with console_at_the_stop(project, 2) as screen:
        await typed(screen, f"b ranks.py:{TENS}", r"0-1 +Breakpoint 1 at")
        screen.type("cast ranks(:) mark('a', 2)\r")
        await all_marked(project, "a", 2)
        os.kill(pid, signal.SIGKILL)
        await shown(screen, r"0-1 +the session ended before it answered; the line is not sent")
        await screen.shows(r"the session is gone; the ranks stay as they are")
        await project.up()
        await shown(screen, r"2 ranks on 1 node .* 2 stopped$")
        await typed(screen, "cast ranks(:) p total", r"0-1 +0$")
        await typed(screen, "list", rf"A +0-1 +2 +ranks\.py:{LOOP} <module> +stopped")
        assert marks(project, "a", 2) == ["x", "x"]
        # The successor has learned of the breakpoint, and forgets it with the console.
        await typed(screen, "cast ranks(:) c", rf"ranks 0-1 stopped: ranks\.py:{TENS} ")
        screen.type("q\r")
        assert await screen.ended() == 0
    await runs_to_its_end(project, terminal)


async def test_a_rank_that_a_signal_stops_before_a_killed_session_is_taken_up(
    project: Project,
) -> None:
    terminal = await looping(project, 2)
    pid = (await project.status())["pid"]
    async with console_at_the_stop(project, 2) as screen:
        screen.type("q\r")
        assert await screen.ended() == 0
    of_rank = await pids(project)
    os.kill(of_rank[1], signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    await project.up()
    async with console(project) as screen:
        try:
            # It hides no other rank.
            await shown(screen, r"2 ranks on 1 node .* 1 running, 1 stopped$")
            await typed(screen, "cast ranks(0) p total", "0$")
        finally:
            os.kill(of_rank[1], signal.SIGCONT)
        await shown(screen, rf"rank 1 stopped: ranks\.py:{LOOP} ")
        await typed(screen, "cast ranks(:) p total", r"0-1 +0$")
        await typed(screen, f"b ranks.py:{TENS}", r"0-1 +Breakpoint 1 at")
        await typed(screen, "cast ranks(:) c", rf"ranks 0-1 stopped: ranks\.py:{TENS} ")
        screen.type("q\r")
        assert await screen.ended() == 0
    await runs_to_its_end(project, terminal)


@pytest.mark.slow
async def test_two_consoles_on_the_same_ranks(project: Project) -> None:
    terminal = await looping(project, 2)
    async with console_at_the_stop(project, 2) as one, console(project) as other:
        await other.shows("2 stopped")
        await typed(one, f"b ranks.py:{ADDS}", r"0-1 +Breakpoint 1 at")
        await typed(other, f"b ranks.py:{TENS}", r"0-1 +Breakpoint 1 at")
        # Each sees where the other's lines lead, and the breakpoints of both hold.
        await typed(one, "cast ranks(:) c", rf"ranks 0-1 stopped: ranks\.py:{ADDS} ")
        await shown(other, rf"ranks 0-1 stopped: ranks\.py:{ADDS} ")
        await typed(other, "cast ranks(:) c", rf"ranks 0-1 stopped: ranks\.py:{TENS} ")
        await shown(one, rf"ranks 0-1 stopped: ranks\.py:{TENS} ")
        await typed(other, "cast ranks(1) n", r"(?:1 +)?ranks\.py")
        await shown(one, rf"rank 1 stopped: ranks\.py:{LOOP} ")
        one.type("q\r")
        assert await one.ended() == 0
        # The breakpoints of the other are left.
        await typed(other, "cast ranks(:) c", rf"ranks 0-1 stopped: ranks\.py:{TENS} ")
        await typed(other, "c", "1 breakpoint of this console removed")
        await terminal.line(r"run 1 · ended: exit code 0")
        await other.shows("2 ranks wait for a debugger")
        other.type("q\r")
        assert await other.ended() == 0
    await eventually(lambda: terminal.text.count("total 60") == 2, "both have ended as they should")
