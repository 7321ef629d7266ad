"""`tk run` without a terminal: a signal that the node does not take ends the command."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

import pytest

from tunnelkit.cli.commands.node import run
from tunnelkit.cli.commands.node.run import _PassedSignals
from tunnelkit.mux.channel import Channel
from tunnelkit.session.runtime.control_calls import ExecSignal, Status
from tunnelkit.session.runtime.control_client import SessionClient

_PATIENCE_S = 20.0


class _Channel:
    id = 3

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def abort(self) -> None:
        self.over.set()


class _Session:
    """A session in one state; the node takes signals once `answers` is set."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.answers = asyncio.Event()
        self.sent: asyncio.Queue[str] = asyncio.Queue()

    async def call(self, request: object) -> object:
        if isinstance(request, Status):
            await asyncio.sleep(0)  # the session answers in its order
            return {"state": self.state, "detail": ""}
        assert isinstance(request, ExecSignal)
        self.sent.put_nowait(request.signal)
        await self.answers.wait()
        return None


def make(state: str) -> tuple[_Session, _Channel, _PassedSignals]:
    session, channel = _Session(state), _Channel()
    return (
        session,
        channel,
        _PassedSignals(cast(SessionClient, session), cast(Channel, channel)),
    )


async def test_the_first_one_while_the_session_reconnects() -> None:
    session, channel, signals = make("reconnecting")
    signals.pass_on(signal.SIGTERM)
    async with asyncio.timeout(_PATIENCE_S):
        await channel.over.wait()
        assert await session.sent.get() == "SIGTERM"
    assert signals.left_by == signal.SIGTERM


async def test_a_second_one_that_finds_the_first_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    session, channel, signals = make("ready")
    async with asyncio.timeout(_PATIENCE_S):
        for _ in range(2):  # at once: both are passed on
            signals.pass_on(signal.SIGINT)
        assert [await session.sent.get() for _ in range(2)] == ["SIGINT", "SIGINT"]
        assert signals.left_by is None
        monkeypatch.setattr(run, "_PROMPT_S", 0.0)
        signals.pass_on(signal.SIGINT)
        await channel.over.wait()
    assert signals.left_by == signal.SIGINT and session.sent.empty()


async def test_those_that_the_node_takes_are_all_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_PROMPT_S", 0.0)
    session, channel, signals = make("ready")
    session.answers.set()
    async with asyncio.timeout(_PATIENCE_S):
        for _ in range(3):
            signals.pass_on(signal.SIGINT)
            assert await session.sent.get() == "SIGINT"
            await asyncio.gather(*signals._tasks)
    assert signals.left_by is None and not channel.over.is_set()
