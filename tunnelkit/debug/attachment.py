"""The laptop's side of an attached process: a loop of one generation that nobody restarts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.debug.agent_api import AgentApi
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.proxy import SourceFiles
from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.generation import Generation
from tunnelkit.debug.loop import FROM_THE_BEGIN, DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent
from tunnelkit.debug.ranks.console_messages import EditorOfRank
from tunnelkit.errors import DebugError
from tunnelkit.messages import agent_calls as calls
from tunnelkit.mux.loop_records import LoopRecord


class Attachment(DebugLoop):
    """One process that was given a debugger while it ran (agent/debug/injection.py).

    `begin` or `adopt`, then `close`. An editor that leaves lets it run on, for the next.
    """

    def __init__(
        self,
        agent: AgentApi,
        port: EditorPort,
        adapters: Adapters,
        *,
        place: Callable[[], SourceFiles | None] = lambda: None,
        on_record: Callable[[LoopRecord], None] = lambda record: None,
        read_ahead: bool = True,
    ) -> None:
        self._agent = OneAgent(agent)
        super().__init__(
            self._agent,
            port,
            adapters,
            on_disconnect="continue",
            place=place,
            on_record=on_record,
            read_ahead=read_ahead,
        )
        #: The name of the process's node.
        self.node = ""
        self._failure: Message = {}

    @property
    def pid(self) -> int:
        """The process on the node."""
        return self.info.get("attach", 0)

    async def begin(self, spec: calls.AttachSpec) -> None:
        """Begin to attach."""
        info = await calls.ATTACH_START.ask(self._agent.agent, spec)
        self._agent.loop_id = info["id"]
        self._follow(info)

    async def adopt(
        self, description: calls.LoopInfo, first: Mapping[int, int] = FROM_THE_BEGIN
    ) -> None:
        """See `DebugLoop.adopt`."""
        self._agent.adopt(description)
        await super().adopt(description, first)

    async def wait_attached(self) -> bool:
        """Return once an F5 finds the process; False: only when it is back in Python.

        Raises DebugError, saying what to do, if it can't be attached to.
        """
        while True:
            changed = self.changed
            if self._failure:
                raise DebugError(
                    f"process {self.pid} can't be attached to",
                    cause=str(self._failure.get("cause")),
                    hint=str(self._failure.get("hint")),
                )
            generation = self.first()
            if generation is not None and generation.targets[0].armed:
                return True
            if self.state == "pending":
                return False
            if self.state in ("ended", "stopped"):
                raise DebugError(
                    f"process {self.pid} ended before it could be attached to",
                    hint="start it under `tk loop`, then F5 comes before its first line",
                )
            await changed.wait()

    async def restart(self, reason: str, generation: int | None = None) -> None:
        """Do nothing: tk does not end a process that it has not started."""

    async def open_in_editor(self, run: Generation, target: DebugTarget) -> EditorOfRank:
        """See `DebugLoop.open_in_editor`."""
        found = await super().open_in_editor(run, target)
        found["port"] = self.port
        return found

    def stand(self) -> str | None:
        """Return the reason why no debuggee will come; None if one may."""
        if self.state in ("ended", "stopped", "failed"):
            return f"Process {self.pid} can't be debugged (any more): see `tk logs`."
        return None

    def run_given_up(self, generation: Generation, why: str) -> None:
        """Let go of the process: its adapter is gone, and with it the process's connection."""
        self.spawn(self.stop())

    def _event(self, event: Message) -> None:
        name = event.get("event")
        if name == "failed":
            self._failure = event
        if name in ("pending", "failed"):
            self._progress.state = str(name)
        super()._event(event)

    async def wait_over(self) -> None:
        """Return once the process has ended, or is let go."""
        await super().wait_over()
        # Editors hear of the end before the port is given up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while self.has_editor:
                    await self.changed.wait()
