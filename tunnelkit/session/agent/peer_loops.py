"""The debug loops of an agent on another node: their ids differ from those of all other agents."""

from __future__ import annotations

from collections.abc import Mapping

from tunnelkit.messages.agent_calls import Caller
from tunnelkit.mux.channel import Channel
from tunnelkit.session.agent.client import AgentClient

#: More loops than one agent has: each agent counts its own from 1.
_STRIDE = 100_000


class PeerLoops(Caller):
    """An agent's calls and channels, for the loops on its node (debug/agent_api.py).

    place: the node's among the allocation's nodes, from 1; the first node is 0.
    """

    def __init__(self, agent: AgentClient, place: int) -> None:
        self._agent = agent
        self._first = place * _STRIDE

    async def call(self, method: str, **params: object) -> object:
        """Call the agent. Raises TunnelkitError."""
        answer = await self._agent.call(method, **self._there(params))
        if isinstance(answer, list):
            return [self._here(one) for one in answer]
        return self._here(answer)

    def open(self, header: Mapping[str, object]) -> Channel:
        """Open a channel to the agent."""
        return self._agent.open(self._there(header))

    def _there(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Fields as the agent knows them."""
        loop = fields.get("loop")
        return {**fields, "loop": loop - self._first} if isinstance(loop, int) else {**fields}

    def _here(self, answer: object) -> object:
        """An agent's answer as the session knows it: a loop has an id."""
        number = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(number, int):
            return answer
        return {**answer, "id": number + self._first}


def here(header: Mapping[str, object], place: int) -> dict[str, object]:
    """Return the header of a debuggee's channel with the session's id of its loop."""
    loop = header.get("loop")
    known = isinstance(loop, int) and 0 < loop < _STRIDE
    return {**header, "loop": loop + place * _STRIDE if known and isinstance(loop, int) else 0}
