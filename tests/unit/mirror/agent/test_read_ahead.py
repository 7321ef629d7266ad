"""Slices that are read before somebody asks for them: not too many, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tunnelkit.mirror.agent.path_header import Slice
from tunnelkit.mirror.agent.read_ahead import AHEAD_BYTES, ReadAhead


class Source:
    """Makes slices of that size, and counts them."""

    def __init__(self, count: int, size: int, error: Exception | None = None) -> None:
        self.count, self.size, self.error = count, size, error
        self.read = 0

    def __iter__(self) -> Iterator[Slice]:
        for number in range(self.count):
            self.read += 1
            yield Slice(b"%08d" % number + bytes(self.size - 8), last=number == self.count - 1)
            if self.error is not None:
                raise self.error


async def _idle(reading: ReadAhead) -> None:
    """Until it waits for room, or has ended."""
    async with asyncio.timeout(10):
        while not reading._task.done() and reading._waiting_bytes < AHEAD_BYTES:
            await asyncio.sleep(0)


async def test_all_come_in_their_order_and_little_waits_in_memory() -> None:
    source = Source(20, AHEAD_BYTES // 4)
    reading = ReadAhead(iter(source))
    await _idle(reading)
    assert source.read == 4
    for number in range(20):
        piece = await reading.next()
        assert piece.data.startswith(b"%08d" % number)
        assert source.read <= number + 5
    assert piece.last
    await reading.close()


async def test_one_that_is_larger_than_the_limit_passes() -> None:
    reading = ReadAhead(iter(Source(3, 2 * AHEAD_BYTES)))
    assert [(await reading.next()).last for _ in range(3)] == [False, False, True]
    await reading.close()


async def test_an_error_comes_in_its_place() -> None:
    reading = ReadAhead(iter(Source(2, 100, OSError("gone"))))
    assert not (await reading.next()).last
    with pytest.raises(OSError, match="gone"):
        await reading.next()
    await reading.close()


async def test_it_stops_when_it_is_closed() -> None:
    source = Source(100, AHEAD_BYTES)
    reading = ReadAhead(iter(source))
    await _idle(reading)
    await reading.close()
    await reading.close()
    assert source.read == 1
