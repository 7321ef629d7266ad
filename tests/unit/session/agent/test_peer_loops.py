"""Loops of other nodes' agents have ids of their own, and no node can take another's."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.peer_loops import PeerLoops, here


class Agent:
    """An agent that answers with what it is given."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.seen: list[dict[str, Any]] = []

    async def call(self, method: str, **params: object) -> object:
        self.seen.append(params)
        return self.answer

    def open(self, header: dict[str, object]) -> object:
        self.seen.append(header)
        return None


def loops(agent: Agent, place: int) -> PeerLoops:
    return PeerLoops(cast("AgentClient", agent), place)


async def test_ids_are_translated_both_ways() -> None:
    agent = Agent([{"id": 1, "debug": True}, {"id": 2}])
    answer = await loops(agent, 3).call("loop.list")
    assert answer == [{"id": 300_001, "debug": True}, {"id": 300_002}]
    agent.answer = {"id": 4}
    assert await loops(agent, 1).call("attach.start", pid=5) == {"id": 100_004}
    agent.answer = None
    assert await loops(agent, 1).call("loop.stop", loop=100_004) is None
    loops(agent, 2).open({"type": "loop-log", "loop": 200_007, "from": 0})
    assert [one.get("loop") for one in agent.seen] == [None, None, 4, 7]


@given(st.integers(1, 1000), st.one_of(st.integers(), st.text(), st.none(), st.booleans()))
def test_a_node_reaches_only_its_own_loops(place: int, loop: object) -> None:
    number = here({"type": "debuggee", "loop": loop}, place)["loop"]
    assert isinstance(number, int)
    assert number == 0 or number // 100_000 == place
