"""Streams of `tk run` and `tk shell`: a terminal on the laptop, a process on the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tunnelkit.errors import TunnelkitError
from tunnelkit.messages.agent_calls import EXEC_RESIZE, EXEC_SIGNAL, ExecResize
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.exec_relay import join, pump


class ExecStreams:
    """Connects exec channels of the control socket with exec channels of the agent."""

    def __init__(self, agent: Callable[[], AgentClient]) -> None:
        self._agent = agent
        self._far_ids: dict[tuple[Mux, int], int] = {}
        self._stderr: dict[int, asyncio.Future[Channel]] = {}

    async def run(self, near_mux: Mux, near: Channel, header: dict[str, object]) -> None:
        """Start the process on the node and carry its streams until it ends."""
        try:
            agent = self._agent()
        except TunnelkitError as error:
            near.close({"failure": error.to_json()})
            return
        far = agent.open(header)
        self._far_ids[near_mux, near.id] = far.id
        errors = asyncio.create_task(self._carry_stderr(near_mux, near, far))
        try:
            await join(near, far)
            # stderr has its own channel; the process is over when both channels have ended.
            await asyncio.wait([errors], timeout=2.0)
        finally:
            await cancel_all(errors)
            self._stderr.pop(far.id, None)
            del self._far_ids[near_mux, near.id]

    def stderr_opened(self, channel: Channel, header: dict[str, object]) -> None:
        """Accept the stderr channel that the agent opened for one of these processes."""
        far_id = header.get("for")
        if isinstance(far_id, int) and far_id in self._far_ids.values():
            stderr = self._stderr_of(far_id)
            if not stderr.done():
                stderr.set_result(channel)
                return
        channel.abort({"error": "no such process"})

    async def signal(self, mux: Mux, near_id: int, name: str) -> None:
        """Send a signal to the process's group on the node."""
        far_id = self._far_ids.get((mux, near_id))
        if far_id is not None:
            await EXEC_SIGNAL.ask(self._agent(), {"channel": far_id, "signal": name})

    async def resize(self, mux: Mux, near_id: int, rows: int, cols: int) -> None:
        """Set the terminal size of the process on the node."""
        far_id = self._far_ids.get((mux, near_id))
        if far_id is not None:
            size: ExecResize = {"channel": far_id, "rows": rows, "cols": cols}
            await EXEC_RESIZE.ask(self._agent(), size)

    def _stderr_of(self, far_id: int) -> asyncio.Future[Channel]:
        return self._stderr.setdefault(far_id, asyncio.get_running_loop().create_future())

    async def _carry_stderr(self, near_mux: Mux, near: Channel, far: Channel) -> None:
        source = await self._stderr_of(far.id)
        sink = near_mux.open({"type": "stderr", "for": near.id})
        await pump(source, sink)
        sink.close()
