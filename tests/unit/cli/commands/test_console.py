"""`tk console`'s terminal, when its session is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.cli.commands.debug.console import _session_again
from tunnelkit.session.runtime import blocking_client, control_client
from tunnelkit.session.runtime.blocking_client import no_session, session_gone


async def test_a_session_that_is_going_is_no_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket takes connections for a moment; then it is gone, or ends before it answers."""
    (tmp_path / "launch").touch()
    tried = 0

    class Session:
        async def call(self, request: object) -> None:
            if tried == 2:
                raise session_gone()

    @asynccontextmanager
    async def connect(_paths: object) -> AsyncIterator[Session]:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise no_session()
        yield Session()

    monkeypatch.setattr(blocking_client, "is_alive", lambda _paths: True)
    monkeypatch.setattr(control_client, "connect", connect)
    paths: Any = SimpleNamespace(launch=tmp_path / "launch")
    assert await _session_again(paths) and tried == 3
    monkeypatch.setattr(blocking_client, "is_alive", lambda _paths: False)
    (tmp_path / "launch").unlink()
    assert not await _session_again(paths)
