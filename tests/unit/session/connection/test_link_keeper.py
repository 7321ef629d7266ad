"""When a lost connection is tried again: by itself only where nobody could have to answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ConnectionThrottled,
    HostKeyError,
    TunnelkitError,
)
from tunnelkit.link.base import Link
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.connection.link_keeper import LinkKeeper, backoff_s
from tunnelkit.session.connection.prompt_gate import PromptGate


@given(st.integers(0, 10_000), st.booleans())
def test_pauses_grow_to_a_bound_and_are_longer_for_a_host_that_hangs_up(
    attempt: int, throttled: bool
) -> None:
    error = (ConnectionThrottled if throttled else ConnectionFailed)("x")
    most = min(60 if throttled else 15, 2.0 ** min(attempt, 10))
    assert most / 2 <= backoff_s(attempt, error) <= most


class FakeLink:
    """Fails as it is told; counts the attempts."""

    def __init__(self) -> None:
        self.failures: list[TunnelkitError] = []
        self.attempts = 0
        self.tried = asyncio.Event()
        self.up = asyncio.Event()

    async def open(self) -> None:
        self.attempts += 1
        self.tried.set()
        if self.failures:
            raise self.failures.pop(0)
        self.up.set()

    async def is_alive(self) -> bool:
        return False

    async def wait_lost(self) -> str:
        if self.up.is_set() and self.attempts:
            await asyncio.Event().wait()
        return "cut"


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def stuck() -> asyncio.Queue[Any]:
    return asyncio.Queue()


@pytest.fixture
async def keeper(link: FakeLink, stuck: asyncio.Queue[Any]) -> AsyncIterator[LinkKeeper]:
    made = LinkKeeper(cast(Link, link), lost=lambda why, error: None, stuck=stuck.put_nowait)
    yield made


@pytest.mark.parametrize("kind", [AuthenticationFailed, HostKeyError, ConfigError])
async def test_what_a_person_has_to_mend_is_tried_once_until_one_comes(
    link: FakeLink, keeper: LinkKeeper, stuck: asyncio.Queue[Any], kind: type[TunnelkitError]
) -> None:
    link.failures = [kind("no"), kind("no")]
    running = asyncio.create_task(keeper.run())
    try:
        for attempts in (1, 2):
            assert type(await stuck.get()) is kind
            for _ in range(100):
                await asyncio.sleep(0)
            assert link.attempts == attempts and not keeper.is_up
            keeper.retry()
            assert await stuck.get() is None
        await link.up.wait()
        await keeper.wait_up()
        assert link.attempts == 3
    finally:
        await cancel_all(running)


async def test_a_name_that_is_not_known_just_now_needs_nobody(
    link: FakeLink, keeper: LinkKeeper, stuck: asyncio.Queue[Any]
) -> None:
    link.failures = [ConnectionFailed("no such host", transient=False)]
    running = asyncio.create_task(keeper.run())
    try:
        await link.tried.wait()
        keeper.retry()
        await keeper.wait_up()
        assert link.attempts == 2
        assert stuck.get_nowait() is None and stuck.empty()
    finally:
        await cancel_all(running)


class Whole(FakeLink):
    """Its connection is well: only a forward of it is not in place."""

    async def is_alive(self) -> bool:
        return True


async def test_an_attempt_for_a_forward_says_nothing_of_the_connection() -> None:
    """Else it would clear what the agent's client waits for the user to solve."""
    link, news = Whole(), asyncio.Queue[Any]()
    keeper = LinkKeeper(
        cast(Link, link), lost=lambda *why: news.put_nowait(why), stuck=news.put_nowait
    )
    keeping = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        await link.up.wait()
        await keeper.wait_up()
    await cancel_all(keeping)
    assert link.attempts == 1 and news.empty()


async def test_nobody_is_asked_outside_of_a_visit() -> None:
    asked: list[str] = []
    here = True

    async def prompter(text: str, echo: bool) -> str:
        asked.append(text)
        return "secret"

    attendance = PromptGate(prompter, lambda: here)
    assert not attendance.is_open() and await attendance.ask("?", False) is None
    attendance.arrive()
    assert attendance.is_open() and await attendance.ask("code", False) == "secret"
    here = False
    assert not attendance.is_open(), "the terminal has gone"
    attendance.arrive(coming=True)
    assert attendance.is_open(), "the terminal is on its way"
    attendance.leave()
    here = True
    assert not attendance.is_open() and await attendance.ask("?", False) is None
    assert asked == ["code"]


async def test_a_question_waits_for_the_command_that_is_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that is near asks before `tk up` has connected to the session it started."""
    here = asyncio.Event()

    async def prompter(text: str, echo: bool) -> str | None:
        return "secret" if here.is_set() else None

    attendance = PromptGate(prompter, here.is_set)
    attendance.arrive(coming=True)
    early = asyncio.create_task(attendance.ask("code", False))
    await asyncio.sleep(0)
    assert not early.done()
    here.set()
    assert await early == "secret"

    here.clear()
    late = asyncio.create_task(attendance.ask("code", False))
    await asyncio.sleep(0)
    attendance.leave()
    assert await late is None, "whoever was coming has given up"
    monkeypatch.setattr("tunnelkit.session.connection.prompt_gate._COMES_WITHIN_S", 0.01)
    attendance.arrive(coming=True)
    assert await attendance.ask("code", False) is None, "nobody came"


class LoginEnded(FakeLink):
    """Its login has ended, and what runs over it goes on."""

    async def is_alive(self) -> bool:
        return True


async def test_an_ended_login_where_all_goes_on_is_no_loss(stuck: asyncio.Queue[Any]) -> None:
    link, losses = LoginEnded(), asyncio.Queue[Any]()
    keeper = LinkKeeper(
        cast(Link, link), lost=lambda *why: losses.put_nowait(why), stuck=stuck.put_nowait
    )
    await keeper.open()
    link.up.clear()
    link.failures = [AuthenticationFailed("your login has ended")]
    keeping = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        assert "ended" in str(await stuck.get())
        assert keeper.is_up and keeper.needs_login
        keeper.retry()
        assert [await stuck.get(), await stuck.get()] == [None, None]
    await cancel_all(keeping)
    assert losses.empty() and keeper.is_up and not keeper.needs_login
