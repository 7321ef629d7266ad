"""Forwards that can't be put back at once are tried again, but not against the user's will."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.ports import free_port
from tunnelkit.errors import AuthenticationFailed, ConnectionFailed, TunnelkitError
from tunnelkit.link.options import LinkOptions
from tunnelkit.link.shared import forward_table
from tunnelkit.link.shared.forward_table import ForwardTable
from tunnelkit.model import Hop, LocalForward

PATIENCE_S = 10.0


class Connection:
    """A connection to the node that can be lost."""

    host = "node1"

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def wait(self) -> str:
        await self.over.wait()
        return "lost"


class Active:
    """A forward in place."""

    chain = None

    def __init__(self, route: Any, connection: Connection) -> None:
        self.route, self.connection = route, connection

    @property
    def is_up(self) -> bool:
        return not self.connection.over.is_set()


class Table(ForwardTable[Connection, Active]):
    """A table whose node answers with the next of `answers`, then with a connection."""

    def __init__(self, *answers: TunnelkitError) -> None:
        nobody: Any = None
        options = LinkOptions(Hop("login"), node_routes=("node",))
        super().__init__(Connection(), nobody, self._connect, options)
        self.answers = list(answers)
        self.attempts = 0
        self.node = Connection()

    async def _connect(self, node: str) -> Connection:
        self.attempts += 1
        if self.node.over.is_set():
            if self.answers:
                raise self.answers.pop(0)
            self.node = Connection()
        return self.node

    async def _by_connection(self, route: Any, connection: Connection, forward: Any) -> Active:
        return Active(route, connection)

    async def _withdraw(self, forward: LocalForward, active: Active) -> None: ...

    async def _end(self, active: Sequence[Active]) -> None: ...


async def lost(*answers: TunnelkitError) -> tuple[Table, LocalForward]:
    """A table whose only forward was lost, and could not be put back."""
    table, forward = Table(*answers), LocalForward(free_port(), "127.0.0.1", 1)
    await table.add(forward, "node1")
    assert not table.retries()
    table.node.over.set()
    await table.restore()
    assert table.route(forward, "node1") is None and list(table.failed()) == [(forward, "node1")]
    return table, forward


async def due(table: Table) -> None:
    (retry,) = table.retries()
    async with asyncio.timeout(PATIENCE_S):
        assert await retry == "a forward is not in place yet"


async def test_a_node_that_is_away_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_table, "_PAUSES_S", (0.01, 0.05))
    away = (ConnectionFailed("node1 is away", transient=True) for _ in range(3))
    table, forward = await lost(*away)
    for _ in range(3):
        await due(table)
        await table.restore()
    assert table.route(forward, "node1") == "node"
    assert not table.failed() and not table.retries()


async def test_after_a_refusal_only_a_new_connection_is_a_reason_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward_table, "_PAUSES_S", (0.0, 0.0))
    table, forward = await lost(AuthenticationFailed("node1 refuses you", hint="tk auth"))
    attempts = table.attempts
    waiting = asyncio.create_task(due(table))
    await asyncio.wait([waiting], timeout=0.1)
    assert not waiting.done() and table.attempts == attempts
    table.node_came()
    await waiting
    await table.restore()
    assert table.route(forward, "node1") == "node"


def test_the_pauses_grow_to_a_limit() -> None:
    pauses = [forward_table._pause_s(attempt) for attempt in range(1, 40)]
    assert 0.5 <= pauses[0] <= 1.0
    assert all(30.0 <= pause <= 60.0 for pause in pauses[10:])
