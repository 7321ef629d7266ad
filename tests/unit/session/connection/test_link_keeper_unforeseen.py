"""Who brings a lost link back."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tunnelkit.errors import ConnectionFailed, TunnelkitError
from tunnelkit.link.base import Link
from tunnelkit.link.shared import host_keys
from tunnelkit.link.shared.host_keys import effective_config
from tunnelkit.session.connection import link_keeper
from tunnelkit.session.connection.link_keeper import LinkKeeper


class Fragile:
    """A link that is lost at once, and fails in these ways before it is back."""

    def __init__(self, *failures: BaseException) -> None:
        self._failures = list(failures)
        self._losses = 1
        self.opened = asyncio.Event()

    async def wait_lost(self) -> str:
        if not self._losses:
            await asyncio.Event().wait()
        self._losses -= 1
        return "cut"

    async def is_alive(self) -> bool:
        return False

    async def open(self) -> None:
        if self._failures:
            raise self._failures.pop(0)
        self.opened.set()


async def test_it_goes_on_whatever_an_attempt_fails_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_keeper, "backoff_s", lambda attempt, error: 0.0)
    link = Fragile(TimeoutError(), RuntimeError("a defect"), OSError(24, "too many files"))
    said: list[str] = []
    errors: list[TunnelkitError | None] = []

    def lost(why: str, error: TunnelkitError | None) -> None:
        said.append(why)
        errors.append(error)

    keeper = LinkKeeper(cast(Link, link), lost=lost, stuck=lambda error: None)
    task = asyncio.create_task(keeper.run())
    await asyncio.wait_for(link.opened.wait(), 10)
    task.cancel()
    assert said[0] == "cut"
    assert ["TimeoutError" in said[1], "a defect" in said[2], "too many" in said[3]] == [True] * 3
    assert [error is not None and error.transient for error in errors] == [False, True, True, True]


async def test_a_program_of_this_computer_that_hangs_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_keys, "_CONFIG_TIMEOUT_S", 0.01)
    with pytest.raises(ConnectionFailed, match="can't connect to login now") as caught:
        await effective_config(["sleep", "60"], "login")
    assert caught.value.transient
