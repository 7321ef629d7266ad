"""The stream of a debug loop to its terminal."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from itertools import chain, repeat

from tunnelkit.debug.loop_agents.several import NodePart
from tunnelkit.debug.loop_command import NO_POST_MORTEM, understand
from tunnelkit.debug.pdb.pdb_command import console_command
from tunnelkit.errors import AllocationError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.debugging.session_loop import SessionLoop
from tunnelkit.session.handlers.loop_parts import parts_for, wants_all_pods
from tunnelkit.session.handlers.loop_start import prepared
from tunnelkit.session.handlers.working_directory import working_directory
from tunnelkit.session.runtime.control_calls import SYNC_TIMEOUT_S, LoopStream
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session

#: Limit of a terminal's wait for the reason why its loop ended.
_REASON_S = 20.0
#: Pauses between questions for a node that is replaced.
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)


async def start(session: Session, stream: LoopStream) -> tuple[SessionLoop, tuple[str, ...]]:
    """Start a loop; return it with notes for the user. Raises TunnelkitError."""
    session.loops.starting += 1
    try:
        return await _start(session, stream)
    finally:
        session.loops.starting -= 1
        session.states.poke()


async def wait_first(session: Session) -> None:
    """Wait while there is no loop, but one that starts."""
    while session.loops.starting and not session.loops.all():
        await session.states.wait_change()


async def _start(session: Session, stream: LoopStream) -> tuple[SessionLoop, tuple[str, ...]]:
    if stream.waits:
        await _until_ready(session, stream.nodes)
    everywhere = wants_all_pods(session, stream)
    parse = console_command if stream.once else understand
    command = parse(stream.words, ranks=stream.ranks or everywhere)
    command = replace(command, expands=stream.expands)
    notes = command.notes
    if session.files.mirrors is not None:
        await session.files.mirrors.barrier(SYNC_TIMEOUT_S)
    cwd = working_directory(session, stream)
    command, more = await prepared(session, command, cwd=cwd, here=stream.here or "")
    notes += more
    parts: list[NodePart] = []
    if everywhere:
        parts, more = await parts_for(session, stream, command, cwd=cwd)
        notes += more
    if stream.post_mortem and not stream.once and not command.can_be_kept:
        notes += (NO_POST_MORTEM,)
    loop = await session.loops.start(
        command,
        cwd=cwd,
        port=stream.port,
        standby=stream.standby,
        preload=stream.preload,
        only=stream.only,
        post_mortem=stream.post_mortem,
        reload=stream.reload,
        once=stream.once,
        parts=parts,
    )
    if loop.given:
        notes += (f"the pods lack {', '.join(loop.given)}: tk gives them",)
    return loop, notes


async def show(
    session: Session,
    loop: SessionLoop,
    channel: Channel,
    notes: tuple[str, ...],
    *,
    keep: bool = False,
) -> None:
    """Show a loop in a terminal until one of them ends.

    The loop ends with the terminal, but with `keep`.
    """
    payload = event_payload(
        "loop",
        id=loop.loop.id,
        port=loop.port.port,
        notes=list(notes),
        node=session.agents.info.get("node"),
        nodes=loop.nodes,
        job=session.cluster.allocated.job_id,
    )
    channel.write_nowait(LoopRecord(EVENT, 0, payload).encode())
    loop.watch(channel)
    over = asyncio.create_task(channel.closed())
    ended = asyncio.create_task(loop.loop.wait_over())
    try:
        await asyncio.wait([over, ended], return_when=asyncio.FIRST_COMPLETED)
        is_over = ended.done()
    finally:
        await cancel_all(over, ended)
    if is_over:
        await _until_dropped(session, loop.loop.id)
    elif not keep and session.loops.has(loop.loop.id):
        await session.loops.stop(loop.loop.id)
    loop.end_watch(channel)
    channel.close({})


async def _until_ready(session: Session, nodes: int) -> None:
    """Wait while a node that was lost is replaced. Raises AllocationError if there will be none.

    nodes: the number that it had."""
    for pause_s in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await _until_there(session, nodes)
            return
        # The session itself asks seldom for nodes but the first.
        session.cluster.agent_changed(False)


async def _until_there(session: Session, nodes: int) -> None:
    while session.states.state is not SessionState.READY or len(session.agents.nodes) < nodes:
        if session.states.is_final:
            raise AllocationError(
                "the loop can't start again: the allocation is over",
                cause=session.states.detail,
                hint="get a new one: tk up",
            )
        await session.states.wait_change()


async def _until_dropped(session: Session, loop_id: int) -> None:
    """Wait until the session has the reason for a loop's end: the agent knows it first."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REASON_S):
            while session.loops.has(loop_id):
                await session.states.wait_change()
