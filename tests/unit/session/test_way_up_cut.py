"""The agent's link, or the agent, is lost between the agent's hello and the end of the way up."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.unit.session.backends.test_another_backend import PATIENCE_S, session
from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.base import ByteStream
from tunnelkit.model import LocalForward
from tunnelkit.session.handlers.service import ControlHandlers
from tunnelkit.session.runtime.control_calls import Settled
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session

__all__ = ["session"]


class FirstCopy:
    """A first copy that goes on until `over`; the session has reached its agent meanwhile."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.over, self.agent_is_there = asyncio.Event(), asyncio.Event()
        self._get_agent = session._get_agent
        monkeypatch.setattr(session.files, "start_patiently", self._start)
        monkeypatch.setattr(session, "_get_agent", self._get)

    async def _start(self, wait_up: object) -> None:
        await self.over.wait()

    async def _get(self) -> None:
        await self._get_agent()
        self.agent_is_there.set()


@pytest.fixture
def copy(session: Session, monkeypatch: pytest.MonkeyPatch) -> FirstCopy:
    return FirstCopy(session, monkeypatch)


def wanted(session: Session, monkeypatch: pytest.MonkeyPatch) -> LocalForward:
    """A forward of the project's configuration."""
    forward = LocalForward(free_port(), "localhost", 1)
    monkeypatch.setattr(type(session.launch.settings), "all_forwards", (forward,))
    return forward


async def test_a_link_cut_during_the_first_copy_comes_back(
    session: Session, copy: FirstCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = wanted(session, monkeypatch)
    async with asyncio.timeout(PATIENCE_S):
        rising = asyncio.create_task(session.up())
        await copy.agent_is_there.wait()
        session.agent().drop_link("cut by the test")
        while session.states.state is not SessionState.RECONNECTING:
            await session.states.wait_change()
        copy.over.set()
        await rising
        assert session.states.state is SessionState.READY
        assert [one["forward"] for one in session.forwards.list()] == [str(forward)]
        await session.down()


async def test_a_job_that_ends_during_the_first_copy_ends_the_session(
    session: Session, copy: FirstCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = wanted(session, monkeypatch)
    cell = Path(session.launch.settings.project_dir).parent / "cell"
    async with asyncio.timeout(PATIENCE_S):
        rising = asyncio.create_task(session.up())
        await copy.agent_is_there.wait()
        os.killpg(int((cell / "pid").read_text()), signal.SIGKILL)
        while not session.agents.is_lost:
            await session.states.wait_change()
        copy.over.set()
        await rising
        assert session.settled.is_set() and session.states.state is SessionState.RECONNECTING
        assert await session.forwards.take() == ((forward, False),), "another node would open it"
        await session.run()
        assert session.states.state is SessionState.ENDED
        assert session.states.detail.startswith("job ")


async def test_a_node_that_refuses_during_the_first_copy_is_no_ready_session(
    session: Session, copy: FirstCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses() -> ByteStream:
        raise ConnectionFailed("the node refuses you", hint="ask for access")

    async with asyncio.timeout(PATIENCE_S):
        rising = asyncio.create_task(session.up())
        await copy.agent_is_there.wait()
        client = session.agents.client
        assert client is not None
        dial = client._dial
        monkeypatch.setattr(client, "_dial", refuses)
        handlers = ControlHandlers(session, lambda keep: None)
        following = asyncio.create_task(handlers._settled(Settled()))
        client.drop_link("cut by the test")
        # `tk up` says so at once: the rest of the way up may wait for the agent, too.
        with pytest.raises(ConnectionFailed, match="the node refuses you"):
            await following
        assert not session.settled.is_set()
        copy.over.set()
        await rising
        assert session.settled.is_set() and session.states.state is SessionState.RECONNECTING
        with pytest.raises(ConnectionFailed, match="the node refuses you"):
            await session.authenticate()
        monkeypatch.setattr(client, "_dial", dial)
        status = await handlers._settled(Settled())
        assert status["state"] == "ready" and session.agents.stuck is None
        await session.down()
