"""The other nodes of an allocation, while pods of it are replaced."""

from __future__ import annotations

from tunnelkit.errors import AllocationError
from tunnelkit.link.base import ByteStream
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.node_agents import PeerAgents


def nobody() -> AgentClient:
    raise AssertionError("the first node is not asked")


async def no_stream(node: str, name: str) -> ByteStream:
    raise AssertionError("no start, no stream")


async def refuses(node: str) -> tuple[str, int] | None:
    raise AllocationError(f"{node} is full", hint="wait")


async def test_nodes_that_stay_keep_what_is_known_of_them_and_others_are_dropped() -> None:
    peers = PeerAgents(nobody, no_stream, refuses, debuggee=lambda channel, header: None)
    peers.allocated(["w-0", "w-1", "w-2"])
    await peers.start()
    peers.now(["w-0", "w-2", "w-3"])
    assert peers.nodes == ["w-2", "w-3"]
    known, new = peers.describe()
    assert (known["why_not"] or "").startswith("w-2 is full") and new["why_not"] is None
    await peers.close()
    assert peers.nodes == []


async def test_no_two_nodes_have_one_place() -> None:
    """The ids of their loops come from it."""
    peers = PeerAgents(nobody, no_stream, refuses, debuggee=lambda channel, header: None)
    peers.allocated(["w-0", "w-1", "w-2"])
    for nodes in (["w-0", "w-2", "w-3"], ["w-0", "w-1", "w-2", "w-3"], ["w-0", "w-4", "w-1"]):
        peers.now(nodes)
        places = [one.place for one in peers._peers.values()]
        assert len(set(places)) == len(places) and min(places) >= 1
    await peers.close()
