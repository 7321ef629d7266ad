"""`tk loop`'s terminal, when its session is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.cli.commands.debug.loop import _session_again
from tunnelkit.session.runtime import blocking_client


@pytest.mark.parametrize("ends", ["comes", "down", "quit"])
async def test_the_terminal_waits_for_the_next_session_without_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The user may come back after lunch."""
    quit_, looked = asyncio.Event(), 0
    (tmp_path / "launch").touch()
    real_sleep = asyncio.sleep

    def is_alive(_paths: object) -> bool:
        nonlocal looked
        looked += 1
        if looked < 20_000:  # more than an hour
            return False
        if ends == "quit":
            quit_.set()
        elif ends == "down":
            (tmp_path / "launch").unlink(missing_ok=True)
        return ends == "comes"

    monkeypatch.setattr(blocking_client, "is_alive", is_alive)
    monkeypatch.setattr(asyncio, "sleep", lambda _s: real_sleep(0))
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: looked * 0.2)
    paths: Any = SimpleNamespace(launch=tmp_path / "launch")
    view: Any = SimpleNamespace(quit=quit_)
    assert await _session_again(paths, view) == (None if ends == "comes" else 0)
