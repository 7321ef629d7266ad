"""A new client is sent unasked what it would ask first."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunnelkit.messages.agent_calls import INFO
from tunnelkit.mux.channel import Channel
from tunnelkit.session.agent.client import AgentClient
from tunnelkit.session.agent.local_agent import LocalAgent
from tunnelkit.session.agents import SessionAgents, _info

PATIENCE_S = 20.0


async def introduced(directory: Path) -> tuple[dict[str, object] | None, dict[str, object]]:
    """What an agent says unasked before its answer to `info`, and the answer."""
    said: list[dict[str, object]] = []

    def opened(channel: Channel, header: dict[str, object]) -> None:
        said.append(header)
        channel.close()

    agent = LocalAgent(directory, f"test-{uuid.uuid4().hex[:12]}")
    client = AgentClient(agent.dial, on_channel=opened, notices={})
    await client.connect()
    try:
        answer = await asyncio.wait_for(INFO.ask(client, {}), PATIENCE_S)
        assert all(header["type"] == "info" for header in said) and len(said) <= 1
        return (dict(cast(Any, said[0]["info"])) if said else None), dict(answer)
    finally:
        await client.shut_down("test over")
        await client.close("test over")


async def test_the_agent_says_what_it_would_answer(tmp_path: Path) -> None:
    said, answer = await introduced(tmp_path)
    assert said == answer and INFO.fits(said) and said["pid"] != os.getpid()


async def test_an_environment_that_is_too_long_for_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/é" * 40_000)
    said, answer = await introduced(tmp_path)
    assert said is None and answer["pythonpath"] == "/é" * 40_000


class Silent:
    """An agent that answers nothing."""

    async def call(self, method: str, **params: object) -> object:
        await asyncio.Event().wait()


async def test_the_session_does_not_wait_for_the_answer_then(tmp_path: Path) -> None:
    _, answer = await introduced(tmp_path)
    agents: Any = SimpleNamespace(_introduction=asyncio.get_running_loop().create_future())
    for nonsense in (None, "x", {}, {**answer, "pid": "1"}):
        SessionAgents._introduce(agents, nonsense)
        assert not agents._introduction.done()
    SessionAgents._introduce(agents, answer)
    SessionAgents._introduce(agents, {**answer, "pid": 1})  # the first one counts
    client = cast(AgentClient, Silent())
    assert await asyncio.wait_for(_info(client, agents._introduction), PATIENCE_S) == answer
