"""The double-buffered loop: the next debuggee is there while one runs, and none is left over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support import processes
from tests.support.tkrig import eventually
from tests.unit.agent.loop_rig import LoopRig, loop_rig
from tests.unit.agent.relay_rig import process_table
from tunnelkit.agent.debug.rank_support import DialedProcess
from tunnelkit.agent.debug.restart_loop import RestartLoop
from tunnelkit.agent.processes.peer_process import PeerProcess
from tunnelkit.agent.processes.port_file import node_name
from tunnelkit.debuggee.ranks import Rank


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LoopRig]:
    (tmp_path / "main.py").write_text("word = 'first'\nprint(word)\n")
    async with loop_rig(tmp_path) as made:
        yield made


async def test_the_next_debuggee_stands_by_and_reads_its_program_at_its_turn(
    rig: LoopRig,
) -> None:
    stop = await rig.f5(1, 2)
    assert await stop.evaluate("word") == "'first'"
    standby = await rig.event("standby")
    assert standby["pid"] == rig.come[2][1].pid and standby["rss_bytes"] > standby["share_bytes"]
    # Edited after the next one was made, and even after its editor has come.
    second = asyncio.create_task(rig.f5(2, 2))
    await eventually(lambda: rig.attached(2), "an editor on the next one")
    assert not second.done()
    (rig.directory / "main.py").write_text("word = 'second'\nprint(word)\n")
    await stop.finish()
    stop = await second
    assert await stop.evaluate("word") == "'second'"
    assert stop.identity.pid == standby["pid"]
    await rig.event("ended", generation=1, code=0)


async def test_a_forked_debuggee_is_a_child_of_ours_with_a_tag_of_its_own(rig: LoopRig) -> None:
    stop = await rig.f5(1, 2)
    who = stop.identity
    server = (await rig.event("fork-server"))["pid"]
    assert who.ancestors[0] == os.getpid() and server != who.pid
    tags = {identity.tag for _, identity in rig.come.values()}
    await rig.event("standby")
    tags |= {identity.tag for _, identity in rig.come.values()}
    assert len(tags) == 2
    # The kernel's copy and the program's own agree.
    assert await stop.evaluate("__import__('os').environ['TK_PROCESS']") == repr(who.tag)
    assert await stop.evaluate("__import__('os').getpid()") == str(who.pid)
    await stop.finish()
    ended = await rig.event("ended", generation=1)
    assert ended["code"] == 0 and ended["peak_rss_bytes"] > 2**20


async def test_a_daemon_without_environment_ends_with_its_generation(rig: LoopRig) -> None:
    """Nothing is left that could hold the GPU, or dial a port that is nobody's any more."""
    source = "import subprocess\np = subprocess.Popen(['sleep', '600'], env={}, "
    source += "start_new_session=True)\nprint(p.pid)\n"
    (rig.directory / "main.py").write_text(source)
    stop = await rig.f5(1, 3)
    daemon = int(await stop.evaluate("p.pid"))
    other = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
    try:
        assert os.path.exists(f"/proc/{daemon}")
        await stop.finish()
        await rig.event("ended", generation=1)
        assert not os.path.exists(f"/proc/{daemon}")
        # Not the run's, though a child of the same process.
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_stopping_the_loop_leaves_no_process(rig: LoopRig) -> None:
    await rig.f5(1, 2)
    await rig.event("standby")
    # The front, the one that stands by, and the server.
    assert len(rig.processes()) == 3
    await rig.stop()
    assert rig.processes() == []


async def test_a_restart_while_one_stands_by_gives_that_one_its_turn(rig: LoopRig) -> None:
    await rig.f5(1, 2)
    standby = await rig.event("standby")
    await rig.loop.restart("restarted by you")
    await rig.event("ended", generation=1, why="restarted by you")
    armed = await rig.event("armed", generation=2)
    assert armed["pid"] == standby["pid"]
    await rig.run_through(2)


async def test_one_that_dies_while_it_stands_by_is_replaced_and_harms_nothing(
    rig: LoopRig,
) -> None:
    stop = await rig.f5(1, 2)
    standby = await rig.event("standby")
    os.kill(standby["pid"], signal.SIGKILL)
    ended = await rig.event("ended", generation=2)
    assert ended["signal"] == "SIGKILL" and ended["why"] == "ended while it stood by"
    # The loop's state is still that of the run in front.
    assert (rig.loop.state, rig.loop.generation, rig.loop.last_end) == ("attached", 1, None)
    assert await stop.evaluate("word") == "'first'"
    await stop.finish()
    await rig.run_through(3)
    assert not processes.is_alive(standby["pid"])


async def test_without_standby_there_is_one_process_and_the_next_comes_after_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "main.py").write_text("word = 'first'\nprint(word)\n")
    async with loop_rig(tmp_path, standby=False) as rig:
        stop = await rig.f5(1, 2)
        assert rig.processes() == [stop.identity.pid]
        await stop.finish()
        await rig.event("armed", generation=2)
        assert not rig.told("standby") and not rig.told("fork-server")


async def test_a_lost_fork_server_is_replaced(rig: LoopRig) -> None:
    await rig.event("armed", generation=1)
    os.kill((await rig.event("fork-server"))["pid"], signal.SIGKILL)
    for number in (1, 2, 3):
        await rig.run_through(number)
    assert len(rig.told("fork-server")) == 2


async def test_the_children_of_ranks_are_told_as_no_ranks() -> None:
    events: list[tuple[int, int]] = []
    doors = cast(Any, SimpleNamespace(wanted=lambda rank: 2))
    loop = RestartLoop(1, {"argv": []}, process_table(), lambda *dialled: None, doors)
    loop._tell = lambda event: events.append((event["rank"], event["pid"]))  # type: ignore
    ended = subprocess.Popen(["true"])
    ended.wait()
    here, lives, gone = node_name(), os.getpid(), ended.pid

    def come(run: int, rank: int, node: str, *pids: int) -> None:
        made = cast(Any, SimpleNamespace(number=run))
        identity = PeerProcess(pids[0], ancestors=pids[1:])
        loop._arrived(made, cast(Any, None), DialedProcess(identity, node, Rank(rank, rank, 2)))

    come(1, 0, here, gone)
    come(1, 1, here, lives)
    come(1, 0, here, 71, gone)  # its child
    come(1, 1, here, 72, 1)  # a child without parents, while its rank lives
    assert events == [(0, gone), (1, lives)]
    come(1, 0, here, 73, 9)  # the launcher starts it again
    come(1, 0, "node2", 73, 9)
    come(2, 1, here, lives)
    assert events[2:] == [(0, 73), (0, 73), (1, lives)]
