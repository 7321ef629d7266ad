"""Commands that wait for a session that the host does not give."""

from __future__ import annotations

import asyncio

import pytest

from tunnelkit.link.shared import session_slots
from tunnelkit.link.shared.session_slots import SessionSlots


class Host:
    """A host that gives `most` sessions at once, and keeps who has asked."""

    def __init__(self, most: int) -> None:
        self.slots = SessionSlots(8)
        self.most, self.open = most, 0
        self.asked: list[int] = []
        self.ran: list[int] = []

    async def run(self, number: int, until: asyncio.Event | None = None) -> None:
        async with self.slots.attempts() as tries:
            async for _ in tries:
                self.asked.append(number)
                if self.open < self.most:
                    break
        # Let go of the turn, as a stream does once it is open.
        self.open += 1
        self.ran.append(number)
        await (until.wait() if until is not None else asyncio.sleep(0.01))
        self.open -= 1


async def test_the_oldest_is_next_and_the_others_do_not_ask() -> None:
    host, ends = Host(1), asyncio.Event()
    first = asyncio.create_task(host.run(0, ends))
    await asyncio.sleep(0)
    others = [asyncio.create_task(host.run(number)) for number in range(1, 6)]
    while len(host.asked) < 8:
        await asyncio.sleep(0.01)
    # Each was refused once; then the oldest alone has asked.
    assert host.ran == [0] and host.asked[:6] == list(range(6)) and {*host.asked[6:]} == {1}
    ends.set()
    await asyncio.gather(first, *others)
    assert host.ran == [0, 1, 2, 3, 4, 5]
    assert not host.slots._turns.locked()


async def test_a_command_whose_time_is_over_leaves_its_place() -> None:
    host, ends = Host(1), asyncio.Event()
    first = asyncio.create_task(host.run(0, ends))
    await asyncio.sleep(0)
    late = [asyncio.create_task(host.run(number)) for number in (1, 2)]
    last = asyncio.create_task(host.run(3))
    while len(host.asked) < 5:
        await asyncio.sleep(0.01)
    for task in late:
        task.cancel()
    assert all(await asyncio.gather(*late, return_exceptions=True))
    ends.set()
    await asyncio.gather(first, last)
    assert host.ran == [0, 3]


async def test_one_that_waits_behind_a_long_one_asks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_slots, "_SELDOM_S", 0.05)
    host, ends = Host(1), asyncio.Event()
    first = asyncio.create_task(host.run(0, ends))
    await asyncio.sleep(0)
    async with host.slots.attempts() as tries:  # a command that holds its turn while it runs
        asked = 0
        async for _ in tries:
            asked += 1
            if asked == 2:
                break
        behind = asyncio.create_task(host.run(1))
        host.most = 2
        await asyncio.wait_for(behind, 10)
    assert host.ran == [0, 1]
    ends.set()
    await first
