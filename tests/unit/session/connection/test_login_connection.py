"""The link, the agent, or both wait for the user."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.session.connection.test_link_keeper import FakeLink
from tunnelkit.errors import AuthenticationFailed, HostKeyError
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.connection.login_connection import LoginConnection

CHANGED_KEY = HostKeyError("the host key of node4 has changed", hint="compare them")
WANTS_CODE = AuthenticationFailed("login wants a code", hint="tk auth")


async def _nobody(text: str, echo: bool) -> str | None:
    return None


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def connection(link: FakeLink) -> LoginConnection:
    part: Any = SimpleNamespace(make_link=lambda settings, setup: link, link_dir=Path("/nowhere"))
    return LoginConnection(
        part,
        part,
        part,
        prompter=_nobody,
        present=lambda: True,
        asks_nodes=lambda: True,
        notice=lambda text: None,
        lost=lambda why, error: None,
        changed=lambda: None,
    )


async def test_a_links_return_does_not_clear_what_the_agent_waits_for(
    link: FakeLink, connection: LoginConnection
) -> None:
    connection.on_stuck("agent", CHANGED_KEY)
    running = asyncio.create_task(connection.keeper.run())
    try:
        await connection.keeper.wait_up()
        assert link.attempts == 1 and connection.stuck is CHANGED_KEY
        connection.retry()
        assert connection.stuck is None
    finally:
        await cancel_all(running)


def test_each_part_clears_its_own(connection: LoginConnection) -> None:
    connection.on_stuck("agent", CHANGED_KEY)
    connection.on_stuck("link", WANTS_CODE)
    connection.on_stuck("agent", None)
    assert connection.stuck is WANTS_CODE
    connection.on_stuck("link", None)
    assert connection.stuck is None
