"""A loop that a killed session left behind, as the next session takes it over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.unit.debug.test_loop_close import Agent, Pipes
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent
from tunnelkit.messages.agent_calls import LoopInfo
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, STDERR, LoopRecord, event_payload

_DEADLINE_S = 30.0


class KeptAgent(Agent):
    """The agent of a loop with a program that waits for its editor, at record 9 of its log."""

    asked: dict[str, object]

    async def call(self, method: str, **params: Any) -> Any:
        return 1 if method == "loop.claim" else None

    def open(self, header: Mapping[str, object]) -> Channel:
        self.asked = dict(header)
        return super().open(self.asked)

    def send(self, number: int, kind: int, payload: bytes) -> None:
        assert self.log is not None
        self.log.received(LoopRecord(kind, number, payload).encode())


@pytest.fixture
def adapters() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close_all()


_LEFT: LoopInfo = {
    "id": 1,
    "debug": True,
    "editor_port": 0,
    "generation": 3,
    "state": "armed",
    "records": 9,
}


@pytest.mark.parametrize(
    ("first", "begin"),
    [({}, 0), ({0: 5}, 5), ({0: 9}, 9), ({0: 10}, 0)],
    ids=["nothing is known", "some are there", "all are there", "of another loop"],
)
async def test_the_log_is_read_from_the_first_record_that_is_not_there(
    adapters: Pipes, first: dict[int, int], begin: int
) -> None:
    agent, port = KeptAgent(), EditorPort(0)
    port.open()
    one = OneAgent(agent)
    one.adopt(_LEFT)
    loop = DebugLoop(one, port, adapters)
    await loop.adopt(_LEFT, first)
    await asyncio.sleep(0)
    assert agent.asked == {"type": "loop-log", "loop": 1, "from": begin}
    await loop.close()
    await port.close()


async def test_old_events_are_told_but_only_new_ones_change_the_loop(adapters: Pipes) -> None:
    agent, port = KeptAgent(), EditorPort(0)
    port.open()
    seen: list[LoopRecord] = []
    one = OneAgent(agent)
    one.adopt(_LEFT)
    loop = DebugLoop(one, port, adapters, on_record=seen.append)
    await loop.adopt(_LEFT, {0: 5})
    agent.send(5, EVENT, event_payload("ended", generation=2, code=1))
    agent.send(6, STDERR, b"Traceback\n")
    agent.send(7, EVENT, event_payload("starting", generation=3, pid=17))
    agent.send(8, EVENT, event_payload("attached", generation=3))
    async with asyncio.timeout(_DEADLINE_S):
        while len(seen) < 4:
            await asyncio.sleep(0)
        assert [one.number for one in seen] == [5, 6, 7, 8]
        assert loop.state == "armed" and loop.first() is None
        agent.send(9, EVENT, event_payload("attached", generation=3))
        while loop.state != "attached":
            await asyncio.sleep(0)
    await loop.close()
    await port.close()
