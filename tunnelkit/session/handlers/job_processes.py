"""The Pythons of an allocation, on all of its nodes, as its agents find them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tunnelkit.errors import TunnelkitError
from tunnelkit.messages.agent_calls import ATTACH_FIND, JOBS_OWN, AttachFind, PythonInfo
from tunnelkit.session.session import Session

#: Nodes that are asked at once: each may have to start an agent first.
_AT_ONCE = 8
_MOST_PROCESSES = 4096
_DEBUGGED = "it has a debugger already: press F5 on its loop's port"


@dataclass
class JobPythons:
    """The answers of the nodes. unreached: the nodes that could not be asked, and why."""

    processes: list[PythonInfo] = field(default_factory=list)
    unreached: dict[str, TunnelkitError] = field(default_factory=dict)


async def find_pythons(
    session: Session, nodes: Sequence[str] | None = None, pid: int | None = None
) -> JobPythons:
    """Ask the agents of these nodes, None: of all; return the Pythons by node.

    They are those that tk has started, or else what the job or pod runs by itself.
    pid: only that process. Raises TunnelkitError if the first node can't be asked.
    """
    wanted = session.agents.nodes if nodes is None else list(nodes)
    slots = asyncio.Semaphore(_AT_ONCE)
    found = JobPythons()

    async def look(node: str) -> list[PythonInfo]:
        async with slots:
            try:
                return await _on(session, node, pid)
            except TunnelkitError as error:
                if node == session.agents.node:
                    raise
                found.unreached[node] = error
                return []

    for part in await asyncio.gather(*(look(node) for node in wanted)):
        found.processes += part
    if any(one["run"] != JOBS_OWN for one in found.processes):
        found.processes = [one for one in found.processes if one["run"] != JOBS_OWN]
    return found


async def _on(session: Session, node: str, pid: int | None) -> list[PythonInfo]:
    agent = await session.agents.on(node)
    params: AttachFind = {"first": session.agents.pid}
    if pid is not None:
        params["pid"] = pid
    found = await ATTACH_FIND.ask(agent, params)
    key = _key(session.agents.nodes)
    debugged = {
        (key(one.who.node), one.debugged_pid)
        for loop in session.loops.all()
        if (run := loop.loop.first()) is not None
        for one in run.targets
        if not one.over
    }
    # In a lab the nodes are one host, and each agent sees the processes of all.
    others = {key(other) for other in session.agents.nodes if other != node}
    here = [one for one in found[:_MOST_PROCESSES] if key(one["node"]) not in others]
    for one in here:
        if (key(one["node"]), one["pid"]) in debugged and not one["why_not"]:
            one["why_not"] = _DEBUGGED
        one["node"] = node
    return here


def _key(nodes: Sequence[str]) -> Callable[[str], str]:
    """Return what makes of a name the part that tells these nodes apart.

    A host may call itself by a longer name than its scheduler does; pods of one owner may differ
    only after a dot."""

    def short(node: str) -> str:
        return node.partition(".")[0]

    return short if len({short(node) for node in nodes}) == len(set(nodes)) else str
