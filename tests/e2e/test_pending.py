"""`tk up` while the node is somebody else's: what it says, and what Ctrl-C does."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator

import pytest

from tests.lab_fixtures import ssh
from tests.support.pty_terminal import Screen, on_a_terminal
from tests.support.tkrig import Project, eventually

#: Slurm's own words are replaced by plain ones.
REASON = r"queued, job \d+: waiting for the resources to become free"


@pytest.fixture
async def full_node(project: Project) -> AsyncIterator[str]:
    """node1, all of it taken by another job; its id."""
    words = "sbatch --parsable --exclusive -w node1 -t 10 -o /dev/null --wrap 'sleep 600'"
    job = (await asyncio.to_thread(ssh, project.lab, "login", words)).strip()
    try:
        await _state(project, job, "RUNNING")
        yield job
    finally:
        await _free(project, job)


async def _state(project: Project, job: str, state: str) -> None:
    """Wait until squeue tells that state of a job; "" once it is over."""
    async with asyncio.timeout(60):
        while True:
            said = await asyncio.to_thread(
                ssh, project.lab, "login", f"squeue -h -j {job} -o %T 2>/dev/null || true"
            )
            if said.strip() == state:
                return
            await asyncio.sleep(0.1)


async def _free(project: Project, job: str) -> None:
    await asyncio.to_thread(ssh, project.lab, "login", f"scancel {job}")
    await _state(project, job, "")


async def _interrupted(screen: Screen) -> None:
    """Wait until the reason is shown, press Ctrl-C, wait for the question."""
    await screen.shows(REASON)
    screen.type("\x03")
    await screen.shows(r"\[c\]ancel the job, \[l\]eave it queued, or \[w\]ait on\? ")


async def test_it_says_why_and_when_in_words(project: Project, full_node: str) -> None:
    async with on_a_terminal(project, "up", "node1") as screen:
        await screen.shows(REASON + r", may start \d{4}-\d\d-\d\d")
        told = (await project.tk("status", "--json")).json
        assert told["state"] == "pending"
        assert told["job"]["pending_reason"] == "Resources"
        assert told["job"]["start_estimate"]
        await _free(project, full_node)
        await screen.shows(r"ready on node1")
        assert await screen.ended() == 0
    # No progress is left on the screen, and no line is empty.
    assert not [line for line in screen.lines if not line.strip() or "queued" in line]


async def test_left_queued_it_goes_on_with_the_next_up(project: Project, full_node: str) -> None:
    async with on_a_terminal(project, "up", "node1") as screen:
        await _interrupted(screen)
        screen.type("l\n")
        await screen.shows(r"left in the queue: `tk up` waits again")
        assert await screen.ended() == 130
    [job] = await project.jobs()
    assert job.endswith(" PENDING")
    assert (await project.tk("status", "--json")).json["state"] == "pending"
    await _free(project, full_node)
    done = await project.tk("up")
    assert f"ready on node1 (job {job.split()[0]})" in done.out


async def test_cancelled_nothing_is_left(project: Project, full_node: str) -> None:
    async with on_a_terminal(project, "up", "node1") as screen:
        await _interrupted(screen)
        screen.type("c\n")
        await screen.shows(r"^cancelled$")
        assert await screen.ended() == 130
    await project.nothing_left(deadline_s=5.0)


async def test_a_second_interrupt_cancels(project: Project, full_node: str) -> None:
    async with on_a_terminal(project, "up", "node1") as screen:
        await _interrupted(screen)
        screen.type("\x03")
        await screen.shows(r"^cancelled$")
        assert await screen.ended() == 130
    await project.nothing_left(deadline_s=5.0)


async def test_it_waits_on_and_asks_again(project: Project, full_node: str) -> None:
    async with on_a_terminal(project, "up", "node1") as screen:
        await _interrupted(screen)
        screen.type("hm\n")
        await screen.shows(r"\[w\]ait on\? ")
        screen.type("w\n")
        await _interrupted(screen)
        screen.type("\x04")  # the end of input changes nothing
        await screen.shows(r"left in the queue")
        assert await screen.ended() == 130
    assert len(await project.jobs()) == 1


@pytest.mark.parametrize(
    "moment", ["begun", "connecting", "looking at", "asking for the node", "submitted"]
)
async def test_an_early_interrupt_leaves_nothing(project: Project, moment: str) -> None:
    terminal = await project.terminal("up", "node1")
    if moment == "begun":
        # The session's process is there, and its starter has not met it yet.
        await eventually(lambda: list(project.base.rglob("lock")), "the session has begun")
    else:
        await terminal.line(moment)
    terminal.interrupt()
    await terminal.line(r"^cancelled$")
    assert await terminal.ended() == 130
    await project.nothing_left(deadline_s=5.0)


async def test_without_a_terminal_an_interrupt_cancels(project: Project, full_node: str) -> None:
    terminal = await project.terminal("up", "node1")
    await terminal.line(REASON)
    terminal.process.send_signal(signal.SIGINT)
    await terminal.line(r"^cancelled$")
    assert await terminal.ended() == 130
    assert not re.search(r"\[c\]ancel|\x1b|\r", terminal.text)
    await project.nothing_left(deadline_s=5.0)


async def test_commands_in_the_queue_say_what_they_wait_for(
    project: Project, full_node: str
) -> None:
    project.write("2.py", "print(1)\n")
    async with on_a_terminal(project, "up", "node1") as screen:
        await _interrupted(screen)
        screen.type("l\n")
        assert await screen.ended() == 130
    async with on_a_terminal(project, "loop", "python", "2.py") as screen:
        await screen.shows(r"waiting for the session: " + REASON)
        screen.type("\x03")
        await screen.shows("nothing was started; the session stays as it is")
        assert await screen.ended() == 0
        assert "no debug loop" not in screen.text and "restart" not in screen.text
    down = await project.tk("down")
    assert re.fullmatch(r"down; job \d+ cancelled\n", down.out)
