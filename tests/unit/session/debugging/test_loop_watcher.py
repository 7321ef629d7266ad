"""A slow terminal misses old output, never an event, and never the last lines."""

from __future__ import annotations

import asyncio
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mux.loop_records import EVENT, STDOUT, LoopRecord, RecordReader, event_payload
from tunnelkit.session.debugging import loop_watcher
from tunnelkit.session.debugging.loop_watcher import LoopWatcher


class SlowChannel:
    """The part of a Channel that a watcher uses; it is full until `drain`."""

    def __init__(self) -> None:
        self.records: list[LoopRecord] = []
        self.room = 0
        self._reader = RecordReader()
        self._on_room = None

    def watch(self, on_news: None, on_room: object) -> None:
        self._on_room = on_room

    def is_full(self) -> bool:
        return self.room <= 0

    def write_nowait(self, data: bytes) -> None:
        self.room -= 1
        self.records += self._reader.feed(data)

    async def drain(self, records: int) -> None:
        self.room, written = records, len(self.records)
        self._on_room()
        assert len(self.records) == written, "it may not write while it is called"
        await asyncio.sleep(0)


def output(number: int, size: int = 1) -> LoopRecord:
    return LoopRecord(STDOUT, number, b"x" * size)


def event(number: int) -> LoopRecord:
    return LoopRecord(EVENT, number, event_payload("ended", number=number))


def begun() -> tuple[SlowChannel, LoopWatcher]:
    channel = SlowChannel()
    watcher = LoopWatcher(channel)
    watcher.begin()
    return channel, watcher


async def test_a_quick_terminal_gets_each_record_at_once() -> None:
    channel, watcher = begun()
    channel.room = 10
    for number in range(3):
        watcher.send(output(number))
        assert channel.records[-1] == output(number)


async def test_the_newest_output_and_each_event_reach_a_slow_terminal() -> None:
    channel, watcher = begun()
    watcher.send(event(0))
    for number in range(1, 11):
        watcher.send(output(number, 1 << 20))
    watcher.send(event(11))
    await channel.drain(100)
    kinds = [(one.kind, one.number) for one in channel.records]
    assert channel.records[1].event() == {"event": "skipped", "records": 3}
    assert kinds[0] == (EVENT, 0)
    assert kinds[2:] == [(STDOUT, number) for number in range(4, 11)] + [(EVENT, 11)]


async def test_a_terminal_that_reads_nothing_costs_little() -> None:
    """Records of a node that lies: events as large as they may be, and output of no bytes."""
    channel, watcher = begun()
    large = event_payload("none", text="x" * (1 << 20))
    tracemalloc.start()
    try:
        for number in range(100):
            watcher.send(LoopRecord(EVENT, number, bytes(bytearray(large))))
        for number in range(100, 100_000):
            watcher.send(output(number, 0))
        now_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now_bytes < 16 << 20
    watcher.end()
    shown = channel.records[-1]
    assert (shown.kind, shown.number) == (STDOUT, 99_999)
    # An event stays, the newest; all the others are named.
    kept = [one for one in channel.records if one.payload == large]
    assert [one.number for one in kept] == [99]
    [note] = [one for one in channel.records if one.kind == EVENT and one not in kept]
    assert note.event()["records"] + len(channel.records) - 1 == 100_000


async def test_what_waits_is_sent_before_the_end() -> None:
    channel, watcher = begun()
    watcher.send(output(0))
    watcher.end()
    assert channel.records == [output(0)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(0, 2))))
async def test_nothing_is_lost_unnamed_or_out_of_order(
    steps: list[tuple[bool, int, int]],
) -> None:
    channel, watcher = begun()
    most, loop_watcher._MOST_WAITING_BYTES = loop_watcher._MOST_WAITING_BYTES, 1000
    try:
        for number, (is_event, size, drained) in enumerate(steps):
            watcher.send(event(number) if is_event else output(number, size))
            await channel.drain(drained)
        watcher.end()
    finally:
        loop_watcher._MOST_WAITING_BYTES = most
    notes = [
        one for one in channel.records if one.kind == EVENT and one.event()["event"] != "ended"
    ]
    real = [one for one in channel.records if one not in notes]
    numbers = [one.number for one in real]
    assert numbers == sorted(set(numbers))
    skipped = sum(one.event()["records"] for one in notes)
    assert skipped + len(real) == len(steps)
    assert all(n in numbers for n, (is_event, _, _) in enumerate(steps) if is_event)
    if steps:
        assert numbers[-1] == len(steps) - 1
