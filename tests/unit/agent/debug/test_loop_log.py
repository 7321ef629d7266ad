"""A loop's log: ordered, bounded, losses counted, readers never hold it up."""

from __future__ import annotations

import asyncio

from tunnelkit.agent.debug.loop_log import LoopLog
from tunnelkit.mux.loop_records import EVENT, STDERR, STDOUT, LoopRecord, RecordReader


async def take(log: LoopLog, start: int, count: int) -> list[LoopRecord]:
    records: list[LoopRecord] = []
    async for record in log.read(start):
        records.append(record)
        if len(records) == count:
            break
    return records


async def test_a_reader_gets_what_was_and_what_comes() -> None:
    log = LoopLog()
    log.append(STDOUT, b"one")
    reading = asyncio.create_task(take(log, 0, 3))
    await asyncio.sleep(0)
    log.event({"event": "armed", "generation": 1})
    log.append(STDERR, b"two")
    records = await reading
    assert [record.number for record in records] == [0, 1, 2]
    assert [record.kind for record in records] == [STDOUT, EVENT, STDERR]
    assert records[1].event() == {"event": "armed", "generation": 1}


async def test_the_oldest_go_and_a_late_reader_is_told_how_many() -> None:
    log = LoopLog(max_bytes=100)
    for number in range(50):
        log.append(STDOUT, b"%04d" % number + b"x" * 16)
    log.close()
    records = [record async for record in log.read(0)]
    assert records[0].event()["event"] == "skipped"
    assert records[0].event()["records"] == 50 - len(records[1:])
    assert records[-1].payload.startswith(b"0049")
    assert sum(len(record.payload) for record in records[1:]) <= 100


async def test_a_reader_that_fell_behind_goes_on_with_what_is_left() -> None:
    log = LoopLog(max_bytes=64)
    log.append(STDOUT, b"first")
    seen = []
    async for record in log.read(0):
        seen.append(record)
        if len(seen) == 1:
            for _ in range(20):
                log.append(STDOUT, b"y" * 16)
            log.close()
    assert seen[0].payload == b"first"
    assert seen[1].event()["event"] == "skipped"
    assert len(seen) == 2 + 4


async def test_tail_gives_the_last_bytes_of_some_kinds() -> None:
    log = LoopLog()
    log.append(STDERR, b"Traceback\n")
    log.append(STDOUT, b"noise\n")
    log.append(STDERR, b"ImportError: x\n")
    assert log.tail((STDERR,), 15) == b"ImportError: x\n"


def test_records_survive_any_split() -> None:
    records = [
        LoopRecord(STDOUT, 7, b"hello"),
        LoopRecord(EVENT, 8, b"{}"),
        LoopRecord(STDERR, 9, b""),
    ]
    wire = b"".join(record.encode() for record in records)
    for size in range(1, len(wire) + 1):
        reader = RecordReader()
        found: list[LoopRecord] = []
        for start in range(0, len(wire), size):
            found += reader.feed(wire[start : start + size])
        assert found == records
