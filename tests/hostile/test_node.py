"""A node that lies: the session stays, or says in one line why it ended; all else is untouched."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.hostile.far_node import EVIL
from tests.hostile.node import Node
from tests.support.ports import free_port
from tests.support.pty_terminal import on_a_terminal
from tests.support.tkrig import PROGRAM, Project, line_of
from tunnelkit.wire.frames import Kind

STOP = line_of(PROGRAM, "total += step")
_OBEYED = ("\x1b]", "\x1b[2J", "\x1b[8m", "\x07", "\x9b", "\u202e")
_MOST_MIB = 120
_MOST_FDS = 700


async def works(project: Project, node: Node) -> None:
    """The session is there, small, and does what it is asked."""
    assert (await project.tk("run", "echo", "it", "works")).out.strip() == "it works"
    assert (await project.status())["state"] == "ready"
    assert node.memory_mib() < _MOST_MIB
    assert node.fds() < _MOST_FDS


async def test_streams_that_nobody_asked_for(project: Project, node: Node) -> None:
    await project.up("node1")
    for header in (
        {"type": "stderr", "for": 7},
        {"type": "stderr", "for": EVIL},
        {"type": "debuggee", "loop": 1, "generation": 1},
        {"type": "debuggee", "loop": EVIL},
        {"type": "rpc"},
        {"type": EVIL},
    ):
        await node.attack("streams", header=header, count=1000, size=180_000)
    await works(project, node)
    log = sum(path.stat().st_size for path in (project.base / "s").rglob("session.log"))
    assert log < 200_000


async def test_answers_and_notices_that_nobody_asked_for(project: Project, node: Node) -> None:
    await project.up("node1")
    await node.attack("answers", count=5000)
    await works(project, node)


async def test_frames_that_come_again_or_for_nothing(project: Project, node: Node) -> None:
    await project.up("node1")
    again = [
        (Kind.OPEN, "rpc", 0, '{"type": "debuggee", "loop": 1}'),
        (Kind.DATA, "rpc", -1, "\x00\x00\x00\x02{}"),
        (Kind.DATA, "none", 0, "x" * 1000),
        (Kind.EOF, "rpc", 0, ""),
        (Kind.CLOSE, "rpc", 0, "{}"),
        (Kind.CREDIT, "rpc", 0, "\x7f" * 4),
        (Kind.ACK, "rpc", 0, ""),
        (Kind.PING, "rpc", 0, EVIL),
        (Kind.PONG, "rpc", 0, EVIL),
    ]
    await node.attack("frames", frames=again, count=5000)
    await works(project, node)


@pytest.mark.parametrize(
    ("attack", "how", "why"),
    [
        ("calls", {"count": 100_000, "size": 5000}, "broke the protocol.*unanswered"),
        ("noise", {}, "protocol error"),
        ("frames", {"frames": [(Kind.DATA, "rpc", 2, "x")], "count": 1}, r"frame \d+ after"),
        ("frames", {"frames": [(Kind.DATA, "none", 1, "x")], "count": 1}, "unknown channel"),
        ("bye", {}, "OWNED"),
    ],
)
async def test_a_session_whose_agent_breaks_the_protocol_says_so(
    project: Project, node: Node, attack: str, how: dict[str, Any], why: str
) -> None:
    await project.up("node1")
    await node.attack(attack, ends=True, **how)
    status: dict[str, Any] = {}

    async def ended() -> bool:
        status.update(await project.status())
        return bool(status["state"] == "ended")

    while not await ended():
        await asyncio.sleep(0.05)
    assert node.memory_mib() < _MOST_MIB
    async with on_a_terminal(project, "run", "true") as screen:
        assert await screen.ended() != 0
    assert not any(one in screen.raw for one in _OBEYED)
    said = " ".join(screen.lines)  # wrapped
    assert said.startswith("tk: the allocation is over: ") and said.endswith(": tk up")
    assert [line for line in screen.lines if line.startswith("tk: ")] == screen.lines[:1]
    assert re.search(why, status["detail"])


async def test_an_agent_that_introduces_itself_with_escapes(project: Project, node: Node) -> None:
    node.introduces_itself()
    async with on_a_terminal(project, "up", "node1") as screen:
        await screen.ended()
    async with on_a_terminal(project, "status") as status:
        await status.ended()
    assert "OWNED" in screen.raw
    assert not any(one in screen.raw + status.raw for one in _OBEYED)


async def test_introductions_without_end_change_nothing(project: Project, node: Node) -> None:
    status = await project.up("node1")
    lie = {"type": "info", "info": {**dict.fromkeys(("name", "node", "home"), "x"), "pid": 1}}
    await node.attack("streams", header=lie, count=2000, size=0)
    await node.attack("streams", header={"type": "info"}, count=2000, size=0)
    await works(project, node)
    now = await project.status()
    assert (now["node"], now["agent"]) == (status["node"], status["agent"])


async def test_debuggees_without_end_leave_other_loops_alone(project: Project, node: Node) -> None:
    await project.up("node1")
    port = free_port()
    await project.loop("--port", str(port), "python", "2.py")
    await project.loop("python", "2.py")
    headers = [
        {"type": "debuggee", "loop": 1, "generation": number // 1500, "rank": [number, 0, 9]}
        for number in range(3000)
    ]
    await node.attack("same_time", headers=headers, data="", size=0)
    await works(project, node)
    assert len(node.adapters()) < 10
    editor, _, _ = await project.f5_to_stop(STOP)
    await editor.request("disconnect")


async def test_what_a_debuggee_says_is_bounded_on_its_way_to_the_adapter(
    project: Project, node: Node
) -> None:
    await project.up("node1")
    await project.loop("python", "2.py")
    header = {"type": "debuggee", "loop": 1, "generation": 1, "pid": 1}
    data = "Content-Length: 999999999999\r\n\r\n"
    await node.attack("same_time", headers=[header], data=data, size=400 << 20)
    assert max(node.memory_mib(one.pid) for one in node.adapters()) < 200
    await works(project, node)


async def test_events_and_history_of_a_loop(project: Project, node: Node) -> None:
    await project.up("node1")
    async with on_a_terminal(project, "loop", "python", "2.py") as screen:
        await screen.shows("armed")
        names = ("starting", "kept", "ended", "waiting", "stale", "lost", "loop", "rank", EVIL)
        events = [
            {"event": name, "generation": 1, "why": EVIL, "pid": EVIL, "error": EVIL, "time": EVIL}
            for name in names
        ]
        await node.attack("events", events=events)
        await screen.shows("OWNED")
        await node.attack("history", size=4 << 20, count=60)
        await node.attack("length")
        await screen.shows("can't be watched")
        assert not any(one in screen.raw for one in _OBEYED)
    await works(project, node)
