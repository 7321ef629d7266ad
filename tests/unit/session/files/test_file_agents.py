"""The mirror's agent keeps no channel in mind that is over."""

from __future__ import annotations

import gc
import weakref

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.base import ByteStream
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.files.file_agents import HeldFileAgent


async def _never() -> ByteStream:
    raise AssertionError("nothing is dialled")


async def test_channels_that_are_over_are_let_go() -> None:
    client = AgentClient(_never, on_channel=lambda channel, header: None, notices={})
    host = HeldFileAgent(client, is_node=True)
    spent = weakref.WeakSet[object]()
    for _ in range(10):
        # As after a link cut: the mirror gives its channel up and opens another.
        channel = host.open({"type": "mirror"})
        spent.add(channel)
        channel.abort()
    channel = host.open({"type": "mirror"})
    gc.collect()
    assert not spent
    assert host.in_use
    channel.close()
    assert not host.in_use
    await client.close("the test is over")


class _Gone(AgentClient):
    """Its agent was killed."""

    async def call(self, method: str, **params: object) -> object:
        raise AgentGone("the agent on the node has ended", cause="killed")


async def test_an_agent_that_has_ended_is_a_lost_connection() -> None:
    """The mirror tries again, by the next agent or without one."""
    client = _Gone(_never, on_channel=lambda channel, header: None, notices={})
    with pytest.raises(ConnectionFailed) as caught:
        await HeldFileAgent(client, is_node=True).call("mirror.verify")
    assert caught.value.one_line().startswith("the agent on the node has ended: killed")
    assert caught.value.transient
    await client.close("the test is over")
