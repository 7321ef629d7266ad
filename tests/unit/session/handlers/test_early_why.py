"""`tk why` and `tk top` of a session that still connects: no scheduler is known yet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunnelkit.errors import AuthenticationFailed, ConnectionFailed
from tunnelkit.session.handlers.jobs.why import scheduler_known
from tunnelkit.session.runtime.state import SessionState, StateMachine
from tunnelkit.session.session import Session


def starting() -> Any:
    states = StateMachine(lambda: None, lambda *told, **more: None)
    states.become(SessionState.CONNECTING, "login")
    cluster = SimpleNamespace(job=None)
    return SimpleNamespace(states=states, cluster=cluster, stuck=None, settled=asyncio.Event())


async def test_it_waits_until_the_scheduler_is_known() -> None:
    session = starting()
    known = asyncio.create_task(scheduler_known(cast(Session, session)))
    session.states.become(SessionState.PREPARING)
    await asyncio.sleep(0)
    assert not known.done()
    session.cluster.job = object()
    session.states.become(SessionState.PENDING)
    await known


async def test_a_cluster_without_a_scheduler_is_known_too() -> None:
    session = starting()
    known = asyncio.create_task(scheduler_known(cast(Session, session)))
    session.states.become(SessionState.PREPARING)
    session.states.become(SessionState.PENDING)
    await known
    session.settled.set()
    await scheduler_known(cast(Session, session))


async def test_a_start_that_fails_or_needs_its_user_ends_the_wait() -> None:
    session = starting()
    session.stuck = AuthenticationFailed("login wants a code", hint="tk auth")
    with pytest.raises(AuthenticationFailed):
        await scheduler_known(cast(Session, session))
    session.stuck = None
    known = asyncio.create_task(scheduler_known(cast(Session, session)))
    await asyncio.sleep(0)
    session.states.fail(SessionState.FAILED, ConnectionFailed("login is gone", hint="wait"))
    with pytest.raises(ConnectionFailed):
        await known
