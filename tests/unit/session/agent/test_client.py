"""The session's client of an agent, while no link comes up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.base import ByteStream
from tunnelkit.session.agent.client import (
    MOST_PAUSE_S,
    AgentClient,
    AgentGone,
    attempt_pause_s,
)


@pytest.mark.parametrize("most_s", [1.5, MOST_PAUSE_S])
@given(attempt=st.integers(0, 10_000))
def test_pauses_grow_to_a_bound(most_s: float, attempt: int) -> None:
    most = min(most_s, 0.2 * 2.0 ** min(attempt, 10))
    assert most / 2 <= attempt_pause_s(attempt, most_s) <= most


async def test_an_agent_that_is_away_for_hours_is_still_tried() -> None:
    attempts = 0

    async def dial() -> ByteStream:
        nonlocal attempts
        attempts += 1
        if attempts > 1100:  # no float is as large as 2**1024
            raise AgentGone("it has ended")
        raise ConnectionFailed("the node does not answer", transient=True)

    client = AgentClient(
        dial, on_channel=lambda channel, header: None, notices={}, most_pause_s=0.0
    )
    with pytest.raises(AgentGone):
        await client._reconnect()
    await client.close("the test is over")
