"""`tk console`'s terminal, when its session is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.cli.commands.debug.console import _session_again
from tunnelkit.errors import NoSessionError
from tunnelkit.session.runtime import blocking_client, control_client
from tunnelkit.session.runtime.blocking_client import no_session, session_gone
from tunnelkit.session.runtime.control_calls import Status


def _sessions(answers: list[NoSessionError | None], state: str) -> Any:
    """Return a `connect` to sessions with these answers to `Settled`."""

    class Session:
        async def call(self, request: object) -> object:
            if isinstance(request, Status):
                return {"state": state}
            if (error := answers.pop(0)) is not None:
                raise error
            return None

    @asynccontextmanager
    async def connect(_paths: object) -> AsyncIterator[Session]:
        yield Session()

    return connect


async def test_a_successor_whose_allocation_is_over_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_client, "is_alive", lambda _paths: True)
    over = NoSessionError("the allocation is over", hint="get a new one: tk up")
    monkeypatch.setattr(control_client, "connect", _sessions([over], "ended"))
    paths: Any = SimpleNamespace(launch=tmp_path / "launch")
    with pytest.raises(NoSessionError, match="the allocation is over"):
        await _session_again(paths)


async def test_a_session_that_is_going_is_no_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket takes connections for a moment; then it is gone, or ends before it answers."""
    (tmp_path / "launch").touch()
    answers: list[NoSessionError | None] = [session_gone(), no_session(), None]
    monkeypatch.setattr(blocking_client, "is_alive", lambda _paths: True)
    monkeypatch.setattr(control_client, "connect", _sessions(answers, "closing"))
    paths: Any = SimpleNamespace(launch=tmp_path / "launch")
    assert await _session_again(paths) and not answers
    monkeypatch.setattr(blocking_client, "is_alive", lambda _paths: False)
    (tmp_path / "launch").unlink()
    assert not await _session_again(paths)
