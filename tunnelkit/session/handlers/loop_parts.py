"""The parts of a loop on all pods of a session: each gets its program, and finds the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tunnelkit.debug.loop_agents.several import NodePart
from tunnelkit.debug.loop_agents.variables import node_variables, runs_on_each_node
from tunnelkit.debug.loop_command import LoopCommand
from tunnelkit.errors import UsageError
from tunnelkit.messages.agent_calls import INFO
from tunnelkit.session.handlers.loop_start import check_there, lend_debugpy
from tunnelkit.session.runtime.control_calls import LoopStream

if TYPE_CHECKING:
    from tunnelkit.session.session import Session


#: The editor has one map of paths for all ranks.
_ELSEWHERE = (
    "HOME differs between the pods, and the files with it: breakpoints bind in the first pod "
    "alone; set [mirror] remote to an absolute path"
)


def wants_all_pods(session: Session, stream: LoopStream) -> bool:
    """Return True if the command is to run in all pods. Raises UsageError if there are none."""
    if not session.launch.settings.cluster.is_kubernetes:
        if stream.all_pods:
            raise UsageError(
                "--all-pods: this cluster has no pods",
                hint="srun and mpirun start ranks on other nodes: tk loop srun ...",
            )
        return False
    if len(session.agents.nodes) < 2:
        return False
    return runs_on_each_node(stream.words) if stream.all_pods is None else stream.all_pods


async def parts_for(
    session: Session, stream: LoopStream, command: LoopCommand, *, cwd: str
) -> tuple[list[NodePart], tuple[str, ...]]:
    """Return a part for each pod, with notes for the user.

    cwd: the working directory in the first pod. Raises DebugError, naming the pod, if one of them
    lacks program or file; TunnelkitError if an agent can't be reached."""
    parts = await session.agents.parts()
    address = session.cluster.allocated.addresses.get(parts[0].node, "")
    home = str(session.agents.info.get("home") or "")
    notes = await asyncio.gather(
        *(_prepare(session, part, command, stream, cwd, home) for part in parts[1:])
    )
    for place, part in enumerate(parts):
        part.defaults = node_variables(stream.words, place, len(parts), address)
    return parts, tuple(dict.fromkeys(note for found in notes for note in found))


async def _prepare(
    session: Session,
    part: NodePart,
    command: LoopCommand,
    stream: LoopStream,
    cwd: str,
    home: str,
) -> tuple[str, ...]:
    """Check a further pod for the program, and lend it a debugpy if it has none."""
    info = await INFO.ask(part.agent, {})
    if home and info["home"] != home and (cwd == home or cwd.startswith(home + "/")):
        part.cwd = info["home"] + cwd[len(home) :]
    there = part.cwd or cwd
    await check_there(part.agent, part.node, command, cwd=there, here=stream.here or "")
    lent, notes = await lend_debugpy(
        session,
        command,
        cwd=there,
        agent=part.agent,
        base=session.cluster.base_on(part.node),
        node=part.node,
        pythonpath=info.get("pythonpath"),
    )
    if lent is not command:
        part.env = {"PYTHONPATH": lent.env["PYTHONPATH"]}
    return (*notes, _ELSEWHERE) if part.cwd else notes
