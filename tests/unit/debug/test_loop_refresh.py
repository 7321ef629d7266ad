"""F5 after a preloaded file has changed: which runs are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.debug.test_loop_close import Agent, Pipes
from tunnelkit.debug.dap.editor_port import EditorPort
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.loop_agents.base import OneAgent


class ChangedFiles(Agent):
    """An agent that ends these generations, as a file that they were forked with has changed."""

    def __init__(self, *ended: int) -> None:
        super().__init__()
        self._ended = list(ended)

    async def call(self, method: str, **params: Any) -> Any:
        if method == "loop.refresh":
            return self._ended
        return {**await super().call(method, **params), "preload": ["mylib"]}


@pytest.fixture
def adapters() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close_all()


@pytest.mark.parametrize(
    ("ended", "first"),
    # A program in front that once had an editor is not restarted: it is still F5's.
    [((), 1), ((2,), 1), ((1,), 2), ((1, 2), None)],
)
async def test_only_runs_that_the_agent_ends_are_given_up(
    adapters: Pipes, ended: tuple[int, ...], first: int | None
) -> None:
    agent, port = ChangedFiles(*ended), EditorPort(0)
    port.open()
    loop = DebugLoop(OneAgent(agent), port, adapters)
    await loop.start({"editor_port": port.port})
    await asyncio.sleep(0)
    for number in (1, 2):
        loop._run_of(number)
    await loop._refresh()
    found = loop.first()
    assert (found and found.number) == first
    await loop.close()
    await port.close()
