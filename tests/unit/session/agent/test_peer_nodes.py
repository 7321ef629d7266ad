"""The other nodes of an allocation: their names, pods that are replaced, links that are lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tunnelkit.errors import AllocationError, ConnectionFailed, TunnelkitError, UsageError
from tunnelkit.link.base import ByteStream
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.local_agent import LocalAgent
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


@pytest.mark.parametrize(
    ("nodes", "short_names", "node", "found"),
    [
        (["llama-3.1-sft-0", "llama-3.1-sft-1"], False, "llama-3.1-sft-0", "the first"),
        (["llama-3.1-sft-0", "llama-3.1-sft-1"], False, "llama-3.1-sft-1", "llama-3.1-sft-1"),
        (["w-0", "llama-3.1-sft-1"], False, "llama-3", None),
        (["n1.site", "n2.site"], True, "n1", "the first"),
        (["n1.site", "n2.site"], True, "n2", "n2.site"),
        (["n1", "n2"], True, "n2.site", None),
        (["a", "n.east", "n.west"], True, "n", None),
        (["a", "n.east", "n"], True, "n", "n"),
    ],
)
async def test_a_node_goes_by_its_whole_name_and_a_host_by_a_short_one_of_its_own(
    nodes: list[str], short_names: bool, node: str, found: str | None
) -> None:
    """One whose agent can't be started shows which it is."""
    peers = PeerAgents(
        nobody, no_stream, refuses, debuggee=lambda channel, header: None, short_names=short_names
    )
    peers.allocated(nodes)
    if found == "the first":
        assert await peers.execs(node) is None
    elif found is None:
        with pytest.raises(UsageError, match=f"{node} is not a node") as unknown:
            await peers.execs(node)
        assert unknown.value.cause == f"it has {', '.join(nodes)}"
    else:
        with pytest.raises(AllocationError, match=f"^{found} is full"):
            await peers.execs(node)
    await peers.close()


async def test_an_agent_that_refuses_is_told_and_tried_again_for_its_user(tmp_path: Path) -> None:
    there = LocalAgent(tmp_path, f"peer-{tmp_path.name}")
    refusals: list[ConnectionFailed] = []
    stuck: asyncio.Queue[tuple[str, TunnelkitError]] = asyncio.Queue()

    async def dial(node: str, name: str) -> ByteStream:
        if refusals:
            raise refusals.pop(0)
        return await there.dial()

    async def runs(node: str) -> tuple[str, int] | None:
        return "agent", 1

    peers = PeerAgents(
        nobody,
        dial,
        runs,
        debuggee=lambda channel, header: None,
        on_stuck=lambda node, error: stuck.put_nowait((node, error)),
    )
    peers.allocated(["n1", "n2"])
    async with asyncio.timeout(30.0):
        client = await peers.client("n2")
        assert client is not None
        refused = [ConnectionFailed("ssh does not lead to n2", hint=str(one)) for one in (1, 2)]
        refusals += refused
        client.drop_link("cut")
        for error in refused:
            assert await stuck.get() == ("n2", error)
            assert peers.describe()[0]["why_not"] == error.one_line()
            with pytest.raises(ConnectionFailed) as caught:
                await peers.execs("n2")
            assert caught.value is error, "nobody would end the wait"
            await peers.retry()
        assert client.is_up and peers.describe()[0]["why_not"] is None and stuck.empty()
        assert await peers.client("n2") is client
        await client.shut_down("the test is over")
        await peers.close()
