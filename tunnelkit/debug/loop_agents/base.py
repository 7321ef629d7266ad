"""The calls of a loop to its agent, or to the agents of its nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.loop_log import read_log
from tunnelkit.messages import agent_calls as calls
from tunnelkit.mux.loop_records import LoopRecord

#: Each record of a loop's log with its event; {} for output, and for what was before an adoption:
#: the description of the loop has the outcome.
LogRecords = AsyncGenerator[tuple[LoopRecord, Message], None]


class LoopAgents(Protocol):
    """The agents of one loop. All raise TunnelkitError."""

    async def start(self, spec: calls.LoopSpec) -> calls.LoopInfo:
        """Start the loop, and describe it."""
        ...

    def log(self, first: Mapping[int, int]) -> LogRecords:
        """Return the loop's log from these records, by part, else from its begin.

        Raises RecordError."""
        ...

    async def claim(self) -> int:
        """Have the debuggees offered that wait for a session; how many there are."""
        ...

    async def refresh(self) -> list[int]:
        """Compare what was preloaded with the disk; the generations that end as it has changed."""
        ...

    async def restart(self, reason: str, generation: int | None) -> None:
        """End that generation, if it is the one that runs; None: whichever runs."""
        ...

    async def attached(self, generation: int, client: str) -> None:
        """Report that an editor is on that generation."""
        ...

    async def stop(self) -> None:
        """End the loop; returns once its processes are gone."""
        ...


class OneAgent:
    """The loop `loop_id` of one agent; `start` gives it its id."""

    def __init__(self, agent: AgentApi, loop_id: int = 0) -> None:
        self.agent = agent
        self.loop_id = loop_id
        #: The number of its records when it was adopted.
        self.old_records = 0

    def adopt(self, description: calls.LoopInfo) -> None:
        """Take over a loop."""
        self.loop_id = description["id"]
        self.old_records = description.get("records", 0)

    async def start(self, spec: calls.LoopSpec) -> calls.LoopInfo:
        """See `LoopAgents.start`."""
        info = await calls.LOOP_START.ask(self.agent, spec)
        self.loop_id = info["id"]
        return info

    def log(self, first: Mapping[int, int]) -> LogRecords:
        """See `LoopAgents.log`."""
        begin = first.get(0, 0)
        if begin > self.old_records:
            begin = 0  # it is of another loop
        channel = self.agent.open({"type": "loop-log", "loop": self.loop_id, "from": begin})

        async def records() -> LogRecords:
            try:
                async for record, event in read_log(channel):
                    yield record, event if record.number >= self.old_records else {}
            except Exception:
                channel.abort({"error": "no log of a loop"})
                raise

        return records()

    async def claim(self) -> int:
        """See `LoopAgents.claim`."""
        return await calls.LOOP_CLAIM.ask(self.agent, {"loop": self.loop_id})

    async def begin(self, generation: int, *, now: bool = False) -> None:
        """Let the runs up to that one begin, if the loop has parts on other nodes.

        now: without the pause after a failure."""
        params: calls.LoopBegin = {"loop": self.loop_id, "generation": generation, "now": now}
        await calls.LOOP_BEGIN.ask(self.agent, params)

    async def fail(self, reason: str, generation: int) -> None:
        """End that generation as one that has failed, as another part of the loop has."""
        params: calls.LoopFail = {
            "loop": self.loop_id,
            "generation": generation,
            "reason": reason,
        }
        await calls.LOOP_FAIL.ask(self.agent, params)

    async def refresh(self) -> list[int]:
        """See `LoopAgents.refresh`."""
        return await calls.LOOP_REFRESH.ask(self.agent, {"loop": self.loop_id})

    async def restart(self, reason: str, generation: int | None) -> None:
        """See `LoopAgents.restart`."""
        params: calls.LoopRestart = {
            "loop": self.loop_id,
            "reason": reason,
            "generation": generation,
        }
        await calls.LOOP_RESTART.ask(self.agent, params)

    async def attached(self, generation: int, client: str) -> None:
        """See `LoopAgents.attached`."""
        params: calls.LoopAttached = {
            "loop": self.loop_id,
            "generation": generation,
            "client": client,
        }
        await calls.LOOP_ATTACHED.ask(self.agent, params)

    async def stop(self) -> None:
        """See `LoopAgents.stop`."""
        await calls.LOOP_STOP.ask(self.agent, {"loop": self.loop_id})
