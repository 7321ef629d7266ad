"""An editor that can't be served gets the reason, and the next one gets another try."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.debug.test_loop_close import Agent, Pipes
from tunnelkit.debug.adapter.adapter import Adapters
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent
from tunnelkit.errors import ConnectionFailed, DebugError
from tunnelkit.mux.dap_framing import DapReader, encode

_DEADLINE_S = 30.0


class NoAdapter(Pipes):
    """Adapters that can't be asked for their capabilities."""

    async def capabilities(self) -> Message:
        raise DebugError("the adapter did not start", cause="no memory", hint="try again")


class NoAnswer(Agent):
    """An agent that has just been lost."""

    async def call(self, method: str, **params: Any) -> Any:
        if method == "loop.refresh":
            raise ConnectionFailed("the agent is gone", hint="tk up")
        return {**await super().call(method, **params), "preload": ["mylib"]}


@pytest.fixture
async def port() -> AsyncIterator[EditorPort]:
    made = EditorPort(0)
    made.open()
    yield made
    await made.close()


async def answer(port: EditorPort) -> Message:
    """The port's answer to an editor that introduces itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    try:
        writer.write(encode({"seq": 1, "type": "request", "command": "initialize"}))
        frames = DapReader()
        while data := await reader.read(65536):
            for body in frames.feed(data):
                return dict(json.loads(body))
        raise AssertionError("it hung up without a message")
    finally:
        writer.close()


@pytest.mark.parametrize("why", ["no adapter", "no agent"])
async def test_the_editor_gets_the_reason(port: EditorPort, why: str) -> None:
    adapters = NoAdapter() if why == "no adapter" else Pipes()
    agent = NoAnswer() if why == "no agent" else Agent()
    loop = DebugLoop(OneAgent(agent), port, adapters)
    await loop.start({"editor_port": port.port})
    loop.info["ranks"] = {"only": None}
    async with asyncio.timeout(_DEADLINE_S):
        refusal = await answer(port)
    assert refusal["command"] == "initialize" and refusal["success"] is False
    expected = {
        "no adapter": "the adapter did not start: no memory — try again",
        "no agent": "the agent is gone — tk up",
    }
    assert expected[why] in str(refusal)
    await loop.close()
    adapters.close_all()


async def test_capabilities_that_could_not_be_had_are_asked_for_again() -> None:
    class Once(Adapters):
        asked = 0

        async def _ask_capabilities(self) -> Message:
            self.asked += 1
            if self.asked == 1:
                raise DebugError("the adapter did not start", hint="try again")
            return {"supportsRestartRequest": True}

    adapters = Once()
    with pytest.raises(DebugError):
        await adapters.capabilities()
    for _ in range(2):
        assert await adapters.capabilities() == {"supportsRestartRequest": True}
    assert adapters.asked == 2
    await adapters.close()
