"""The first link by an early way, and the wire's move to the one that is kept."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.agent.links.session_links import SessionLinks
from tunnelkit.errors import ConnectionFailed, HostKeyError, TunnelkitError
from tunnelkit.link.base import ByteStream
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import RpcPeer
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.first_link import MOVE_S, FirstWays


class Stream:
    """One end of a socket pair, as a stream of a link."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.closed = asyncio.Event()

    def fileno(self) -> int:
        return self._sock.fileno()

    async def wait(self) -> int:
        return 0

    def diagnosis(self) -> str:
        return ""

    async def close(self) -> None:
        self._sock.close()
        self.closed.set()


class Agent:
    """Serves links as the agent does; `links` are those that were opened, in order."""

    def __init__(self, directory: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / "s"))
        self._served = SessionLinks(listener, lambda endpoint: Mux(endpoint, self._opened))
        self._tasks: list[asyncio.Task[Any]] = []
        self.gate = asyncio.Event()
        self.links: list[Stream] = []
        self.calls = 0

    def _opened(self, channel: Channel, header: dict[str, object]) -> None:
        async def add(params: dict[str, object]) -> object:
            self.calls += 1
            await self.gate.wait()
            return params["number"]

        self._tasks.append(asyncio.create_task(RpcPeer(channel, {"add": add}).serve()))

    async def dial(self) -> ByteStream:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self._tasks.append(asyncio.create_task(self._served.serve(theirs)))
        self.links.append(Stream(ours))
        return self.links[-1]

    async def close(self) -> None:
        await self._served.stop("over")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Ways:
    """The two ways, each held back until the test lets it go on."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.early, self.better = asyncio.Event(), asyncio.Event()
        self.error: TunnelkitError | None = None
        self.early_error: TunnelkitError | None = None
        self.works = True
        self.asked = 0
        self.silent: ByteStream | None = None
        self.entered = 0
        self.reports: list[tuple[bool, str]] = []
        self.stuck: list[TunnelkitError | None] = []
        self.is_stuck = asyncio.Event()
        self.redialled = 0

    def client(self) -> AgentClient:
        return AgentClient(
            self._redial,
            on_channel=lambda channel, header: None,
            notices={},
            on_link=lambda up, why, error: self.reports.append((up, why)),
            on_stuck=self._stuck,
            first=FirstWays(self._early, self._count, self._better),
        )

    async def _redial(self) -> ByteStream:
        self.redialled += 1
        if self.error is not None:
            raise self.error
        return await self._agent.dial()

    def _stuck(self, error: TunnelkitError | None) -> None:
        self.stuck.append(error)
        self.is_stuck.set()

    def _count(self) -> None:
        self.entered += 1

    async def _early(self) -> ByteStream:
        await self.early.wait()
        if self.early_error is not None:
            raise self.early_error
        return await self._agent.dial()

    async def _better(self) -> ByteStream | None:
        await self.better.wait()
        if self.error is not None:
            raise self.error
        self.asked += 1
        if self.silent is not None:
            return self.silent
        return await self._agent.dial() if self.works else None


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    made = Agent(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def ways(agent: Agent) -> Ways:
    return Ways(agent)


async def test_the_wire_moves_and_nobody_hears_of_it(agent: Agent, ways: Ways) -> None:
    client = ways.client()
    ways.early.set()
    await client.connect()
    living = asyncio.create_task(client.run())
    calls = [asyncio.create_task(client.call("add", number=number)) for number in range(20)]
    while agent.calls < 20:
        await asyncio.sleep(0)
    ways.better.set()
    await asyncio.wait_for(agent.links[0].closed.wait(), 10)
    agent.gate.set()
    assert await asyncio.wait_for(asyncio.gather(*calls), 10) == list(range(20))
    assert agent.calls == 20  # each came once
    assert await asyncio.wait_for(client.call("add", number=7), 10) == 7
    assert (ways.entered, ways.reports, ways.redialled) == (1, [], 0)
    assert client.is_up and not agent.links[1].closed.is_set()
    await client.close("over")
    assert agent.links[1].closed.is_set()
    assert await living == "over"


async def test_the_better_way_alone_carries_if_it_is_there_first(agent: Agent, ways: Ways) -> None:
    client = ways.client()
    ways.better.set()
    await asyncio.wait_for(client.connect(), 10)
    assert (ways.entered, len(agent.links)) == (0, 1)
    await client.close("over")


async def test_an_early_way_that_fails_leaves_it_to_the_better_one(
    agent: Agent, ways: Ways
) -> None:
    client = ways.client()
    ways.early_error = ConnectionFailed("srun refuses")
    ways.early.set()
    connecting = asyncio.create_task(client.connect())
    while ways.early_error.__traceback__ is None:
        await asyncio.sleep(0)
    ways.better.set()
    await asyncio.wait_for(connecting, 10)
    assert (ways.entered, len(agent.links), ways.redialled) == (0, 1, 0)
    await client.close("over")


async def test_without_a_better_way_the_early_one_stays(agent: Agent, ways: Ways) -> None:
    client = ways.client()
    ways.works = False
    ways.better.set()
    connecting = asyncio.create_task(client.connect())
    ways.early.set()
    await asyncio.wait_for(connecting, 10)
    agent.gate.set()
    assert await asyncio.wait_for(client.call("add", number=1), 10) == 1
    assert (ways.entered, len(agent.links), ways.reports) == (1, 1, [])
    await client.close("over")


@pytest.mark.parametrize("early", [False, True])
async def test_a_changed_host_key_stops_also_who_is_in_already(
    agent: Agent, ways: Ways, early: bool
) -> None:
    client = ways.client()
    ways.error = HostKeyError("the key has changed")
    if not early:
        ways.better.set()
        with pytest.raises(HostKeyError):
            await asyncio.wait_for(client.connect(), 10)
        assert agent.links == []
        await client.close("over")
        return
    ways.early.set()
    await client.connect()
    living = asyncio.create_task(client.run())
    ways.better.set()
    await asyncio.wait_for(ways.is_stuck.wait(), 10)
    assert ways.stuck == [ways.error]
    assert agent.links[0].closed.is_set() and not client.is_up
    living.cancel()
    await client.close("over")


async def test_a_lost_early_link_is_replaced_in_the_usual_way(agent: Agent, ways: Ways) -> None:
    client = ways.client()
    ways.early.set()
    await client.connect()
    living = asyncio.create_task(client.run())
    client.drop_link("cut")
    agent.gate.set()
    assert await asyncio.wait_for(client.call("add", number=3), 10) == 3
    assert ways.reports == [(False, "cut"), (True, "")]
    ways.better.set()
    assert await asyncio.wait_for(client.call("add", number=4), 10) == 4
    assert len(agent.links) == 2
    living.cancel()
    await client.close("over")


async def test_a_hello_under_way_is_waited_for(
    agent: Agent, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent would follow a hello that comes after the better way's."""
    client = ways.client()
    attach, going_on = client._attach, asyncio.Event()

    async def slow(stream: ByteStream, most_s: float = 30.0) -> None:
        if len(agent.links) == 1:
            await going_on.wait()
        await attach(stream, most_s)

    monkeypatch.setattr(client, "_attach", slow)
    ways.early.set()
    connecting = asyncio.create_task(client.connect())
    while not agent.links:
        await asyncio.sleep(0)
    ways.better.set()
    while len(agent.links) < 2:
        await asyncio.sleep(0)
    going_on.set()
    await asyncio.wait_for(connecting, 10)
    await asyncio.wait_for(agent.links[0].closed.wait(), 10)
    agent.gate.set()
    assert await asyncio.wait_for(client.call("add", number=2), 10) == 2
    assert (ways.entered, ways.reports, ways.redialled) == (1, [], 0)
    await client.close("over")


async def test_a_better_way_that_came_too_early_is_asked_again(agent: Agent, ways: Ways) -> None:
    client = ways.client()
    ways.works = False
    ways.better.set()
    connecting = asyncio.create_task(client.connect())
    while ways.asked < 1:
        await asyncio.sleep(0)
    ways.works = True
    ways.early.set()
    await asyncio.wait_for(connecting, 10)
    await asyncio.wait_for(agent.links[0].closed.wait(), 10)
    agent.gate.set()
    assert await asyncio.wait_for(client.call("add", number=6), 10) == 6
    assert (ways.asked, len(agent.links), ways.reports) == (2, 2, [])
    await client.close("over")


async def test_a_move_to_a_stream_that_says_nothing_is_soon_over(
    agent: Agent, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOVE_S <= 5.0
    monkeypatch.setattr("tunnelkit.session.agent.client.MOVE_S", 0.05)
    client = ways.client()
    ways.early.set()
    await client.connect()
    living = asyncio.create_task(client.run())
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ways.silent = silent = Stream(ours)
    ways.better.set()
    await asyncio.wait_for(silent.closed.wait(), 10)
    agent.gate.set()
    assert await asyncio.wait_for(client.call("add", number=5), 10) == 5
    assert ways.redialled == 1
    assert [up for up, _ in ways.reports] == [False, True]  # and its end is no secret
    assert agent.links[0].closed.is_set() and not agent.links[1].closed.is_set()
    living.cancel()
    await client.close("over")
    theirs.close()


async def test_a_start_that_is_given_up_closes_both(agent: Agent, ways: Ways) -> None:
    client = ways.client()
    connecting = asyncio.create_task(client.connect())
    while not agent._tasks:
        ways.early.set()
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    await client.close("over")
    assert all(link.closed.is_set() for link in agent.links)
    assert len(agent.links) == 1
