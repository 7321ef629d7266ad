"""The processes of ranks on several nodes, as /proc there describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from tunnelkit.debug.ranks.sample import ProcessState
from tunnelkit.errors import TunnelkitError
from tunnelkit.session.agent.command_output import output_of
from tunnelkit.session.debugging import process_states
from tunnelkit.session.session import Session

#: Limit of the wait for a node's answer; it may have to start an agent first.
_PROC_S = 2.0


@dataclass
class ProcessStates:
    """The states by node and pid. answered: the nodes whose answers are in."""

    found: dict[tuple[str, int], ProcessState] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)


async def states_of(session: Session, processes: Iterable[tuple[str, int]]) -> ProcessStates:
    """Ask each node once for all of its processes. A node that does not answer has no states."""
    by_node: dict[str, set[int]] = {}
    for node, pid in processes:
        by_node.setdefault(node, set()).add(pid)
    states = ProcessStates()

    async def ask(node: str, pids: set[int]) -> None:
        try:
            async with asyncio.timeout(_PROC_S):
                agent = await session.agents.on(node)
                output = await output_of(agent, process_states.command(pids), timeout_s=_PROC_S)
        except (TunnelkitError, TimeoutError):
            return
        states.answered.add(node)
        for pid, state in process_states.parse(output).items():
            states.found[node, pid] = state

    await asyncio.gather(*(ask(node, pids) for node, pids in by_node.items()))
    return states
