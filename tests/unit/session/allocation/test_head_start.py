"""Shells that `tk up` opens ahead: none for the way in where round trips are short."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tunnelkit.link.base import Link
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command
from tunnelkit.session.allocation import head_start
from tunnelkit.session.allocation.head_start import ReadyShells

COMMAND = Command(("true",))


class FakeShell:
    """A ready shell that has measured `round_trip_s`."""

    made: list[FakeShell]
    opening_s: float | None = 0.1
    round_trip_s: float | None = None

    def __init__(self, link: Link, most_s: float) -> None:
        self.is_open, self.taken, self.ended = True, False, False
        FakeShell.made.append(self)

    def take(self) -> bool:
        taken, self.taken = self.taken, True
        return not taken

    async def opened(self) -> float | None:
        return self.opening_s

    async def measure(self) -> float | None:
        return self.round_trip_s

    async def run(self, command: Command, timeout_s: float = 30.0) -> Completed:
        return Completed(0, b"by the shell", b"")

    async def open_stream(self, argv: list[str]) -> Any:
        return "by the shell"

    async def end_unused(self) -> None:
        self.ended = not self.taken


class FakeLink:
    async def open_stream(self, argv: list[str], *, node: str | None = None) -> Any:
        return "by a new session"


@pytest.fixture
def shells(monkeypatch: pytest.MonkeyPatch) -> ReadyShells:
    monkeypatch.setattr(FakeShell, "made", [], raising=False)
    monkeypatch.setattr(head_start, "ReadyShell", FakeShell)
    return ReadyShells(cast(Link, FakeLink()))


@pytest.mark.parametrize(
    ("opening_s", "round_trip_s", "made", "far"),
    [
        (0.08, 0.06, 3, True),
        (0.08, 0.02, 3, False),  # the machine was slow, not the network
        (0.03, 0.02, 1, False),
        (0.08, None, 3, False),
        (None, None, 1, False),
    ],
)
async def test_a_step_is_only_used_far_away(
    shells: ReadyShells,
    monkeypatch: pytest.MonkeyPatch,
    opening_s: float | None,
    round_trip_s: float | None,
    made: int,
    far: bool,
) -> None:
    monkeypatch.setattr(FakeShell, "opening_s", opening_s)
    monkeypatch.setattr(FakeShell, "round_trip_s", round_trip_s)
    async with shells:
        shells.begin(entry=True)
        assert await shells.is_far() is far
        assert len(FakeShell.made) == made
    assert all(shell.ended for shell in FakeShell.made)


async def test_each_shell_serves_once(shells: ReadyShells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeShell, "round_trip_s", 0.1)
    async with shells:
        assert await shells.submit(COMMAND) is None
        shells.begin(entry=True)
        assert await shells.submit(COMMAND) == Completed(0, b"by the shell", b"")
        assert await shells.submit(COMMAND) is None
        assert await shells.is_far()
        ways: list[Any] = [await shells.enter(["srun"]) for _ in range(2)]
        assert ways == ["by the shell", "by a new session"]
    assert [shell.ended for shell in FakeShell.made] == [False, True, False]


async def test_the_mirror_s_first_command_with_a_stdin_goes_by_a_shell(
    shells: ReadyShells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeShell, "round_trip_s", 0.1)
    given, by_shell = Command(("cat",), b"a\0"), Completed(0, b"by the shell", b"")
    async with shells:
        assert await shells.look(given, 1.0) is None
        shells.begin(entry=False)
        assert await shells.look(given, 1.0) is None  # it is not open yet
        while len(FakeShell.made) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await shells.look(COMMAND, 1.0) is None
        assert await shells.look(Command(("cat",), b"a" * 40_000), 1.0) is None
        assert await shells.look(Command(("cat",), b"\n" * 2_000), 1.0) is None
        assert await shells.look(given, 1.0) == by_shell
        assert await shells.look(given, 1.0) is None
    assert await shells.look(given, 1.0) is None


async def test_a_long_submission_goes_by_a_session_of_its_own(shells: ReadyShells) -> None:
    async with shells:
        shells.begin(entry=False)
        assert await shells.submit(Command(("sbatch",), b"#\n" * 2_000)) is None
    assert FakeShell.made[0].ended


async def test_a_shell_that_is_still_being_opened_is_not_waited_for(shells: ReadyShells) -> None:
    async with shells:
        shells.begin(entry=False)
        FakeShell.made[0].is_open = False
        assert await asyncio.wait_for(shells.submit(COMMAND), 10) is None
    assert FakeShell.made[0].ended
