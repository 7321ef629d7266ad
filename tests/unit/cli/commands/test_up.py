"""`tk up` beside a session's process that ends at that moment."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.cli.commands.start import up
from tunnelkit.errors import NoSessionError


async def test_a_session_that_was_just_killed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket still accepts while the kernel takes it away; its lock goes with it."""

    async def hangs_up(paths: object) -> None:
        raise NoSessionError("no session is up for this project", hint="start one: tk up [NODE]")

    monkeypatch.setattr(up, "_current", hangs_up)
    monkeypatch.setattr(up, "_KILLED_S", 0.05)
    paths: Any = SimpleNamespace(lock=tmp_path / "lock", session_log=tmp_path / "log")
    assert await up._current_unless_killed(paths) is None
    with open(paths.lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(NoSessionError):
            await up._current_unless_killed(paths)
