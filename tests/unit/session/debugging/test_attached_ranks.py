"""Ranks that were attached to one by one: which console has them, and what is advised."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelkit.debug.attachment import Attachment
from tunnelkit.debug.target_identity import TargetIdentity
from tunnelkit.errors import DebugError
from tunnelkit.session.debugging.attached_ranks import AttachedRanks, loop_for_console
from tunnelkit.session.handlers.interrupt import interrupt_ranks
from tunnelkit.session.runtime.control_calls import LoopInterrupt


class Attached(Attachment):
    """An attachment to a process that has dialled in; rank None: it is no rank."""

    def __init__(self, number: int, rank: int | None, pid: int = 7) -> None:
        self.id = number
        self.info = {"id": number, "debug": True, "editor_port": 1}
        self.changed = asyncio.Event()
        target = SimpleNamespace(
            who=TargetIdentity(pid, "node1", rank, 4),
            over=False,
            is_debugged=False,
            watched=False,
            is_stopped=False,
            attached=False,
        )
        self.run: Any = SimpleNamespace(targets=[target])

    def first(self) -> Any:
        return self.run


class Session:
    """The part of a session that has loops. change: set for a change of it."""

    def __init__(self, *attached: Attached, loop: Any = None) -> None:
        self.attached = list(attached)
        self.loop = loop
        self.change = asyncio.Event()
        self.loops: Any = self
        self.files = SimpleNamespace(mirrors=None)

    def get(self, number: int | None = None) -> Any:
        found = [one for one in self.attached if one.id == number]
        return SimpleNamespace(loop=found[0] if found else self.loop or self.attached[-1])

    def all(self) -> list[Any]:
        return [SimpleNamespace(loop=one) for one in (*self.attached, self.loop) if one]

    def attachments(self) -> list[Attached]:
        return list(self.attached)

    async def wait_change(self) -> None:
        await self.change.wait()

    def console(self, number: int | None = None) -> Any:
        return loop_for_console(self.loops, number, self.wait_change)


def program(number: int) -> Any:
    run = SimpleNamespace(targets=[])
    return SimpleNamespace(id=number, ranked=False, first=lambda: run)


async def test_a_console_without_a_loop_is_on_all_attached_ranks() -> None:
    ranks = [Attached(3, 0), Attached(4, 2), Attached(5, None, pid=0)]
    session = Session(*ranks)
    console = session.console()
    assert isinstance(console, AttachedRanks)
    assert [one.who.rank for one in console.targets] == [0, 2]
    assert (console.world_size, console.number) == (4, 1)
    assert session.console(3) is ranks[0]
    # The newest is no rank: it is what was asked for.
    session.attached.append(Attached(6, None))
    assert session.console() is session.attached[-1]
    session.loop = program(7)
    assert session.console() is session.loop


@pytest.mark.parametrize("what", ["one changes", "one comes"])
async def test_a_console_on_them_sees_a_change_that_comes_before_it_waits(what: str) -> None:
    session = Session(Attached(3, 0), Attached(4, 1))
    console = session.console()
    assert isinstance(console, AttachedRanks)
    change = console.changed
    if what == "one changes":
        session.attached[0].changed.set()
        session.attached[0].changed = asyncio.Event()
    else:
        session.attached.append(Attached(5, 2))
    async with asyncio.timeout(10):
        await change.wait()


@pytest.mark.parametrize(
    ("loop", "advice"),
    [(None, "open `tk console` first"), (program(9), "open `tk console --loop 3` first")],
)
async def test_the_advice_leads_to_the_ranks(loop: Any, advice: str) -> None:
    session = Session(Attached(3, 0), Attached(4, 1), loop=loop)
    request = LoopInterrupt(selection="0-1")
    with pytest.raises(DebugError) as refused:
        await interrupt_ranks(session, request, {})  # type: ignore[arg-type]
    assert advice in str(refused.value.hint)
