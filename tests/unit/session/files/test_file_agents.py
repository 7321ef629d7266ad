"""The mirror's agent keeps no channel in mind that is over."""

from __future__ import annotations

import gc
import weakref

from tunnelkit.link.base import ByteStream
from tunnelkit.session.agent.client import AgentClient
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
