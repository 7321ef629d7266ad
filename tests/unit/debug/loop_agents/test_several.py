"""The agents of several nodes as those of one loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.unit.agent.loop_rig import DEADLINE_S
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.loop_agents.base import LogRecords, OneAgent
from tunnelkit.debug.loop_agents.several import NodePart, SeveralAgents
from tunnelkit.mux.loop_records import EVENT, STDERR, STDOUT, LoopRecord
from tunnelkit.mux.tasks import cancel_all


class Part(OneAgent):
    """A node's agent: notes its calls, and reports the test's events."""

    def __init__(self, loop_id: int) -> None:
        super().__init__(cast(Any, None), loop_id)
        self.calls: list[tuple[str, object]] = []
        self.cut = False
        self.said: asyncio.Queue[Message | LoopRecord | None] = asyncio.Queue()
        self.first: Mapping[int, int] = {}

    def log(self, first: Mapping[int, int]) -> LogRecords:
        self.first = first

        async def records() -> LogRecords:
            while (said := await self.said.get()) is not None:
                if isinstance(said, LoopRecord):
                    yield said, {}
                else:
                    yield LoopRecord(EVENT, 0, b"{}"), said

        return records()

    async def _tell(self, *what: object) -> None:
        if self.cut:
            await asyncio.Event().wait()
        self.calls.append(cast(Any, what))

    async def begin(self, generation: int, *, now: bool = False) -> None:
        await self._tell("begin", generation) if not now else await self._tell("now", generation)

    async def fail(self, reason: str, generation: int) -> None:
        await self._tell("fail", generation)

    async def restart(self, reason: str, generation: int | None) -> None:
        await self._tell("restart", generation)


class Rig:
    """Three parts, and the events that the loop has had."""

    def __init__(self) -> None:
        nodes = [NodePart(f"train-{place}", cast(Any, None)) for place in range(3)]
        self.lost: list[tuple[int, str, str]] = []
        self.parts = [Part(100_000 * place + 1) for place in range(3)]
        self.agents = SeveralAgents(nodes, name="a", lost=lambda *told: self.lost.append(told))
        self.agents._agents = cast(Any, self.parts)
        self.events: list[Message] = []
        self.records: list[LoopRecord] = []
        self._changed = asyncio.Event()

    async def read(self, first: Mapping[int, int] | None = None) -> None:
        async for record, event in self.agents.log(first or {}):
            self.events.append(event)
            self.records.append(record)
            self._changed.set()

    async def event(self, name: str) -> Message:
        async with asyncio.timeout(DEADLINE_S):
            while not (found := [one for one in self.events if one.get("event") == name]):
                self._changed.clear()
                await self._changed.wait()
        return found[-1]

    async def until_called(self, part: int, *what: object) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while what not in self.parts[part].calls:
                await asyncio.sleep(0)

    def say(self, part: int, name: str, generation: int = 1, **fields: object) -> None:
        self.parts[part].said.put_nowait({"event": name, "generation": generation, **fields})


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    reading = asyncio.create_task(made.read())
    try:
        yield made
    finally:
        await cancel_all(reading)


async def test_all_begin_together_and_again() -> None:
    async with rig() as made:
        for part in range(3):
            await made.until_called(part, "begin", 1)
            made.say(part, "ended", code=0, why="ended")
        assert (await made.event("ended"))["code"] == 0
        for part in range(3):
            await made.until_called(part, "begin", 2)


async def test_a_node_whose_link_is_cut_holds_up_nobody() -> None:
    async with rig() as made:
        await made.until_called(2, "begin", 1)
        made.parts[2].cut = True
        made.say(0, "starting")
        made.say(1, "ended", code=1, why="ended")
        assert (await made.event("part-ended"))["node"] == "train-1"
        await made.until_called(0, "fail", 1)
        made.say(0, "armed")
        await made.event("armed")


async def test_a_restart_before_the_run_has_begun_is_its_begin() -> None:
    """Else a part that has begun would be ended without the others."""
    async with rig() as made:
        await made.agents.restart("ready", None)
        assert all(("now", 1) in one.calls for one in made.parts)
        made.say(1, "starting")
        await made.event("starting")
        await made.agents.restart("restarted by you", None)
        assert all(("restart", 1) in one.calls for one in made.parts)


async def test_a_lost_node_is_told_but_for_the_first() -> None:
    async with rig() as made:
        made.parts[0].said.put_nowait(None)
        await made.event("node-lost")
        assert made.lost == []
    async with rig() as made:
        made.parts[2].said.put_nowait(None)
        await made.event("node-lost")
        assert made.lost == [(1, "train-2", "its agent is gone")]


async def test_parts_that_the_killed_session_did_not_tell_are_told() -> None:
    made = Rig()
    states = [(5, "armed"), (4, "ended"), (5, "armed")]
    infos: list[Any] = [
        {"id": place + 1, "debug": True, "editor_port": 1, "generation": number, "state": state}
        for place, (number, state) in enumerate(states)
    ]
    assert made.agents.adopt(infos)["generation"] == 5
    reading = asyncio.create_task(made.read())
    await made.until_called(1, "begin", 5)
    await cancel_all(reading)


async def test_output_tells_its_part_and_the_last_record_in_it() -> None:
    """So a session that adopts the loop reads each part's log from where it was."""
    async with rig() as made:
        for number, text in enumerate((b"one\ntw", b"o\nthr", b"ee")):
            made.parts[2].said.put_nowait(LoopRecord(STDOUT, number, text))
        made.parts[1].said.put_nowait(LoopRecord(STDERR, 7, b"end"))
        made.say(1, "starting")
        await made.event("starting")
        made.say(2, "rank")
        await made.event("rank")
    there = {(one.part, one.number, one.payload) for one in made.records if one.kind != EVENT}
    pieces = {(0, b"one\n"), (1, b"two\n"), (2, b"three")}
    assert there == {*((2, *one) for one in pieces), (1, 7, b"end")}


async def test_an_adopted_loop_reads_each_parts_log_from_where_it_was() -> None:
    made = Rig()
    infos: list[Any] = [
        {"id": place + 1, "debug": True, "editor_port": 1, "generation": 1, "state": "attached"}
        for place in range(3)
    ]
    made.agents.adopt(infos)
    reading = asyncio.create_task(made.read({0: 12, 2: 3}))
    # The events of before: each part has its own.
    for part in made.parts:
        part.said.put_nowait(LoopRecord(EVENT, 12, b'{"event": "ended", "generation": 1}'))
    made.say(2, "rank")
    made.say(1, "rank")
    made.say(0, "ended", code=0)
    made.say(0, "rank")
    while len([one for one in made.events if one.get("event") == "rank"]) < 3:
        await asyncio.sleep(0)
    await cancel_all(reading)
    assert [one.first for one in made.parts] == [{0: 12}, {0: 0}, {0: 3}]
    assert [
        (one.part, one.number)
        for one, event in zip(made.records, made.events, strict=True)
        if not event
    ] == [(0, 12)]
