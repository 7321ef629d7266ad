"""`tk loop` without a session: the same loop, with its agent on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from tunnelkit.config.schema import Settings
from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent
from tunnelkit.debug.loop_command import NO_POST_MORTEM, loop_spec, understand
from tunnelkit.errors import TunnelkitError
from tunnelkit.messages.agent_calls import LoopSpec
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.mux.tasks import cancel_all, first_of
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.local_agent import LocalAgent
from tunnelkit.session.debugging.loop_checks import check_here
from tunnelkit.session.runtime.control_calls import LoopStream
from tunnelkit.session.runtime.paths import cache_root


class LoopTerminal(Protocol):
    """The display of the loop: `cli/views/loop.py`."""

    quit: asyncio.Event

    def mind_signals(self, restart: Callable[[], Awaitable[object]]) -> None:
        """Handle Ctrl-C: call `restart` at the first, end the loop at the second."""

    def show(self, record: LoopRecord) -> None:
        """Print a record of the loop."""


async def run_local(
    wanted: LoopStream, settings: Settings, make_view: Callable[[], LoopTerminal]
) -> int:
    """Run the loop here until the user quits; return the exit code. wanted: as it was typed."""
    view = make_view()
    command = understand(wanted.words, ranks=wanted.ranks)
    check_here(command)
    debug = settings.debug
    keeps = debug.post_mortem and command.can_be_kept
    port = EditorPort(wanted.port or command.port or debug.port)
    port.open()
    adapters = Adapters()
    loops: list[DebugLoop] = []

    def opened(channel: Channel, header: dict[str, object]) -> None:
        if header.get("type") == "debuggee":
            loops[0].debuggee(channel, header)
        else:
            channel.close()

    agent = AgentClient(
        LocalAgent(cache_root(), f"local-{os.getpid()}-{secrets.token_hex(4)}").dial,
        on_channel=opened,
        notices={},
    )
    leaves = "continue" if keeps else debug.on_disconnect
    make_loop = partial(DebugLoop, on_disconnect=leaves, read_ahead=debug.read_ahead)
    try:
        await agent.connect()
        loops.append(loop := make_loop(OneAgent(agent), port, adapters, on_record=view.show))
        view.mind_signals(lambda: loop.restart("restarted by you"))
        unused = [NO_POST_MORTEM] if wanted.post_mortem and not keeps else []
        opening = event_payload("loop", id=1, port=port.port, notes=[*command.notes, *unused])
        view.show(LoopRecord(EVENT, 0, opening))
        spec = loop_spec(
            # tk started the agent, but without the Python settings of this environment.
            replace(command, env={**os.environ, **command.env}),
            cwd=os.getcwd(),
            editor_port=port.port,
            standby=debug.standby,
            preload=debug.preload,
            only=wanted.only,
            post_mortem=keeps,
            collectives=debug.collective_timeouts,
        )
        await _live(agent, loop, view, spec)
        return 0
    finally:
        for one in loops:
            await one.close()
        await adapters.close()
        with contextlib.suppress(TunnelkitError, TimeoutError):
            async with asyncio.timeout(10.0):
                await agent.call("shutdown", reason="tk loop ended")
        await agent.close("tk loop ended")
        await port.close()


async def _live(agent: AgentClient, loop: DebugLoop, view: LoopTerminal, spec: LoopSpec) -> None:
    life = asyncio.create_task(agent.run())
    quitting = asyncio.create_task(view.quit.wait())
    try:
        await loop.start(spec)
        over = asyncio.create_task(loop.wait_over())
        try:
            await first_of(over, quitting, life)
            if quitting.done():
                await loop.stop()
        finally:
            await cancel_all(over)
    finally:
        await cancel_all(life, quitting)
