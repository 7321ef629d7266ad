"""A loop on several nodes: each node's agent runs a part of it, and all parts begin together."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.loop_agents.base import LogRecords, OneAgent
from tunnelkit.debug.loop_agents.joint_runs import JointRuns, Outcome
from tunnelkit.debug.loop_agents.whole_lines import OneStream, WholeLines
from tunnelkit.errors import TunnelkitError
from tunnelkit.messages import agent_calls as calls
from tunnelkit.mux.loop_records import EVENT, LoopRecord
from tunnelkit.mux.tasks import cancel_all, start

T = TypeVar("T")
#: Records on their way from the nodes to the loop.
_MOST_RECORDS = 256
#: The rest of a line is waited for this long before the first part of it is shown.
_REST_OF_LINE_S = 0.1

_Found = tuple[LoopRecord, Message]
#: What a part's reader has for the loop; None: the part's log is over, or can't be read.
_Item = tuple[int, _Found | None, str]


@dataclass
class NodePart:
    """A node with its part of the loop.

    defaults, env: variables for its program, as in LoopSpec. cwd: where it runs; "": as the spec
    says."""

    node: str
    agent: AgentApi
    defaults: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


class SeveralAgents:
    """The agents of one loop, the first node's first. See `LoopAgents`.

    name: the loop's name on all nodes. lost: called with the loop's id, the node and the reason
    when a node is lost but the first, whose end is the session's affair. keeps: see JointRuns.
    """

    def __init__(
        self,
        parts: Sequence[NodePart],
        *,
        name: str,
        lost: Callable[[int, str, str], None],
        keeps: bool = False,
    ) -> None:
        self._parts = list(parts)
        self._name = name
        self._lost = lost
        self._agents = [OneAgent(one.agent) for one in parts]
        self._runs = JointRuns([one.node for one in parts], keeps=keeps)
        #: The run that may begin as soon as the log is read.
        self._due = 1
        #: Names of the variables that nodes got, as they had none.
        self.given: list[str] = []

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [one.node for one in self._parts]

    @property
    def ids(self) -> list[int]:
        """The ids of the parts."""
        return [one.loop_id for one in self._agents]

    async def start(self, spec: calls.LoopSpec) -> calls.LoopInfo:
        """Start all parts. If one can't be started, none runs."""
        started = await asyncio.gather(
            *(self._start(place, spec) for place in range(len(self._parts))),
            return_exceptions=True,
        )
        failed = [one for one in started if isinstance(one, BaseException)]
        if failed:
            await self._each(lambda one: one.stop())
            raise failed[0]
        infos = [one for one in started if not isinstance(one, BaseException)]
        # A pod could name anything.
        known = {name for part in self._parts for name in part.defaults}
        self.given = sorted({name for info in infos for name in info.get("given", [])} & known)
        return infos[0]

    def adopt(self, descriptions: Sequence[calls.LoopInfo]) -> calls.LoopInfo:
        """Take over a loop by the descriptions of its parts, in their order."""
        for place, info in enumerate(descriptions):
            self._agents[place].adopt(info)
            end: Message = dict(info.get("last_end") or {})
            self._runs.goes_on(place, info.get("generation", 0), info.get("state", ""), end)
        self._runs.adopted()
        # The killed session may have let only some parts begin.
        self._due = self._runs.front
        return {**descriptions[0], "generation": self._runs.front, "state": self._runs.state}

    async def _start(self, place: int, spec: calls.LoopSpec) -> calls.LoopInfo:
        part = self._parts[place]
        theirs: calls.LoopSpec = {
            **spec,
            "env": {**spec.get("env", {}), **part.env},
            "together": {"name": self._name, "nodes": len(self._parts)},
            "defaults": part.defaults,
        }
        if part.cwd:
            theirs["cwd"] = part.cwd
        try:
            return await self._agents[place].start(theirs)
        except TunnelkitError as error:
            error.message = f"{part.node}: {error.message}"
            raise

    # -- the log ------------------------------------------------------------

    def log(self, first: Mapping[int, int]) -> LogRecords:
        """See `LoopAgents.log`."""
        logs = [one.log({0: first.get(place, 0)}) for place, one in enumerate(self._agents)]
        return self._join(logs)

    async def _join(self, logs: Sequence[LogRecords]) -> LogRecords:
        items: asyncio.Queue[_Item] = asyncio.Queue(_MOST_RECORDS)
        acting: set[asyncio.Task[None]] = set()
        stream = OneStream()
        readers = [asyncio.create_task(_read(place, log, items)) for place, log in enumerate(logs)]
        try:
            start(acting, self._follow(Outcome(begin=self._due)))
            left = len(readers)
            while left:
                place, found, why = await items.get()
                if found is None:
                    left -= 1
                    outcome = self._runs.lost(place, why)
                    if outcome.events and place:
                        self._lost(self.ids[0], self._parts[place].node, why)
                elif found[0].kind != EVENT:
                    yield stream.feed(found[0]), found[1]
                    continue
                elif not found[1]:
                    # Of the events before an adoption, the first part's stand for all.
                    if place == 0:
                        yield found
                    continue
                else:
                    outcome = self._runs.note(place, found[1])
                number = found[0].number if found is not None else 0
                for event in outcome.events:
                    yield LoopRecord(EVENT, number, json.dumps(event).encode(), place), event
                # Beside the log: a node whose link is lost answers late.
                start(acting, self._follow(outcome))
        finally:
            await cancel_all(*readers, *acting)

    async def _follow(self, outcome: Outcome) -> None:
        """Do what follows from an event. Nodes that don't hear it are lost, and their end is
        seen."""
        begin, generation = outcome.begin, self._runs.front
        with contextlib.suppress(TunnelkitError):
            if outcome.end:
                await self._each(lambda one: one.fail(outcome.end, generation))
            if begin is not None:
                await self._each(lambda one: one.begin(begin))

    # -- calls --------------------------------------------------------------

    async def claim(self) -> int:
        """See `LoopAgents.claim`."""
        return sum(await self._each(lambda one: one.claim()))

    async def refresh(self) -> list[int]:
        """See `LoopAgents.refresh`."""
        ended = await self._each(lambda one: one.refresh())
        return sorted({number for part in ended for number in part})

    async def restart(self, reason: str, generation: int | None) -> None:
        """See `LoopAgents.restart`."""
        front = self._runs.front
        wanted = front if generation is None else generation
        if wanted == front and not self._runs.has_begun:
            # It is about to begin: a part that has begun must not be ended without the others.
            await self._each(lambda one: one.begin(front, now=True))
        else:
            await self._each(lambda one: one.restart(reason, wanted))

    async def attached(self, generation: int, client: str) -> None:
        """See `LoopAgents.attached`."""
        await self._each(lambda one: one.attached(generation, client))

    async def stop(self) -> None:
        """See `LoopAgents.stop`."""
        await self._each(lambda one: one.stop())

    async def _each(self, call: Callable[[OneAgent], Awaitable[T]]) -> list[T]:
        """Call all agents that have a part; the answers of those that can be reached.

        Raises the first node's error if none can."""
        there = [one for one in self._agents if one.loop_id]
        done = await asyncio.gather(*(call(one) for one in there), return_exceptions=True)
        answers = [one for one in done if not isinstance(one, BaseException)]
        failed = [one for one in done if isinstance(one, BaseException)]
        unforeseen = [one for one in failed if not isinstance(one, TunnelkitError)]
        if failed and (unforeseen or not answers):
            raise [*unforeseen, *failed][0]
        return answers


async def _read(place: int, log: LogRecords, items: asyncio.Queue[_Item]) -> None:
    """Read a part's log to its end; output comes in whole lines, where they are soon whole."""
    lines, why = WholeLines(), "its agent is gone"
    coming: asyncio.Future[_Found] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(log))
            await asyncio.wait([coming], timeout=_REST_OF_LINE_S if lines.has_rest else None)
            if not coming.done():
                for record in lines.flush():
                    await items.put((place, (record, {}), ""))
                continue
            record, event = coming.result()
            coming, record = None, record._replace(part=place)
            if record.kind == EVENT:
                for rest in lines.flush():
                    await items.put((place, (rest, {}), ""))
                await items.put((place, (record, event), ""))
                continue
            for whole in lines.feed(record):
                await items.put((place, (whole, {}), ""))
    except StopAsyncIteration:
        pass
    except Exception as error:
        why = f"its log can't be read: {type(error).__name__}: {error}"[:200]
    finally:
        if coming is not None:
            await cancel_all(coming)
        await log.aclose()
    for rest in lines.flush():
        await items.put((place, (rest, {}), ""))
    await items.put((place, None, why))
