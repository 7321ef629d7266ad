"""What a barrier is worth while a session has no compute node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunnelkit.errors import NoSessionError, TimeoutExpired
from tunnelkit.mirror.api import SyncReport
from tunnelkit.session.files.mirror_set import MirrorSet
from tunnelkit.session.handlers.barrier import barrier
from tunnelkit.session.runtime.control_calls import Sync
from tunnelkit.session.runtime.event_log import unrecorded
from tunnelkit.session.runtime.state import SessionState, StateMachine
from tunnelkit.session.session import Session


class FakeSession:
    """In a state, and told of another."""

    def __init__(self, state: str, detail: str) -> None:
        self.states = StateMachine(lambda: None, unrecorded)
        self.states.state, self.states.detail = SessionState(state), detail
        self.link = SimpleNamespace(name="login")
        self.comeback = SimpleNamespace(busy=False)

    def become(self, state: str) -> None:
        self.states.become(SessionState(state), self.states.detail)


class FakeMirrors:
    """Its barriers end at once; `by_node` is asked for each."""

    def __init__(self, by_node: Callable[[], bool]) -> None:
        self._by_node = by_node
        self.barriers = 0

    async def barrier(self, timeout_s: float, *, allow_deletes: bool) -> SyncReport:
        self.barriers += 1
        return SyncReport(by_node=self._by_node())

    def news(self) -> list[str]:
        return []


def _asked(session: FakeSession, mirrors: FakeMirrors, **params: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(
        barrier(cast(Session, session), cast(MirrorSet, mirrors), Sync(**params))
    )


async def test_a_proof_waits_for_the_node_of_a_job_that_was_requeued() -> None:
    session = FakeSession("pending", "job 5 went back into the queue")
    mirrors = FakeMirrors(lambda: session.states.state is SessionState.READY)
    asked = _asked(session, mirrors, proof=True)
    session.become("pending")
    await asyncio.wait([asked], timeout=0.05)
    assert not asked.done() and not mirrors.barriers
    session.become("starting")
    session.become("ready")
    assert (await asked)["unproven"] is None


async def test_a_queue_outlasts_patience() -> None:
    session = FakeSession("pending", "job 5 went back into the queue")
    with pytest.raises(TimeoutExpired) as caught:
        await _asked(session, FakeMirrors(lambda: False), proof=True, timeout_s=0.01)
    assert "job 5 went back into the queue" in caught.value.one_line()


async def test_without_a_node_nothing_is_called_proven() -> None:
    session = FakeSession("ended", "job 5: reached its time limit")
    mirrors = FakeMirrors(lambda: False)
    report = await _asked(session, mirrors)
    assert report["unproven"] == "the allocation is over: job 5: reached its time limit"
    with pytest.raises(NoSessionError, match="no compute node has read the files back"):
        await _asked(session, mirrors, proof=True)
    assert mirrors.barriers == 2, "the login host has them all the same"
