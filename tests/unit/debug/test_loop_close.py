"""The end of a loop: every adapter that it started hears of it, whatever was under way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.support.ports import free_port
from tunnelkit.debug.adapter.adapter import Adapter, Adapters
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.mux.mux import Mux
from tunnelkit.wire.endpoint import Endpoint

_DEADLINE_S = 30.0


class Pipes(Adapters):
    """Adapters that are only the pipe that keeps each of them alive."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[int] = []

    async def start(self) -> Adapter:
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        self.alive.append(read_fd)
        return Adapter(1, 1, write_fd)

    def close_all(self) -> None:
        """Let go of the pipes' own ends."""
        while self.alive:
            os.close(self.alive.pop())

    def left(self) -> int:
        """How many were not told their end."""
        count = 0
        for fd in self.alive:
            try:
                os.read(fd, 1)
            except BlockingIOError:
                count += 1
        return count


class _NoLink(Mux):
    """What the agent says is put in by hand, not by frames."""

    def consumed(self, channel_id: int, count: int) -> None:
        pass


class Agent:
    """The agent's side, by hand: its log comes in by `log`."""

    def __init__(self) -> None:
        self.mux = _NoLink(Endpoint(client=True), lambda channel, header: None)
        self.log: Channel | None = None

    async def call(self, method: str, **params: Any) -> Any:
        return {"id": 1, "debug": True, "editor_port": params.get("editor_port", 0)}

    def open(self, header: dict[str, Any]) -> Channel:
        self.log = self.mux.open(header)
        return self.log

    def tell(self, event: str, number: int) -> None:
        assert self.log is not None
        payload = event_payload(event, generation=number, pid=1, code=0)
        self.log.received(LoopRecord(EVENT, 0, payload).encode())


@pytest.fixture
def adapters() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close_all()


@pytest.fixture
async def port() -> AsyncIterator[EditorPort]:
    made = EditorPort(free_port())
    made.open()
    yield made
    await made.close()


async def test_an_end_in_the_middle_of_a_generations_end_leaves_no_adapter(
    adapters: Pipes, port: EditorPort
) -> None:
    """As `tk down` has it: the agent tells the end of the run, and that of the loop, at once."""
    agent = Agent()
    closing: list[asyncio.Task[None]] = []

    def told(record: LoopRecord) -> None:
        if record.event()["event"] == "ended":
            closing.append(asyncio.create_task(loop.close()))

    loop = DebugLoop(OneAgent(agent), port, adapters, on_record=told)
    await loop.start({"editor_port": port.port})
    agent.tell("starting", 1)
    async with asyncio.timeout(_DEADLINE_S):
        while len(adapters.alive) < 2:  # the generation's, and the one ahead
            await asyncio.sleep(0)
        agent.tell("ended", 1)
        while not closing:
            await asyncio.sleep(0)
        await closing[0]
    assert adapters.left() == 0
