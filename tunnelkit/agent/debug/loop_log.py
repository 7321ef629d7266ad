"""A loop's events and output, in order, bounded: the newest are kept, losses are counted."""

import asyncio
import json
from collections import deque
from typing import AsyncIterator, Container, Deque, Mapping

from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload

#: Enough for some 100,000 lines; a session that was away reads it from here.
MAX_BYTES = 8 * 1024 * 1024


class LoopLog:
    """Records of one loop. The process never waits for readers: a slow one skips."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._records: Deque[LoopRecord] = deque()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._next = 0
        self._changed = asyncio.Event()
        self._over = False

    @property
    def next_number(self) -> int:
        """The number that the next record will have."""
        return self._next

    def event(self, event: Mapping[str, object]) -> None:
        """Append an event."""
        self.append(EVENT, json.dumps(event).encode())

    def append(self, kind: int, payload: bytes) -> None:
        """Append a record; drop the oldest ones when the log is full."""
        self._records.append(LoopRecord(kind, self._next, payload))
        self._next += 1
        self._bytes += len(payload)
        while self._bytes > self._max_bytes and len(self._records) > 1:
            self._bytes -= len(self._records.popleft().payload)
        self._wake()

    def close(self) -> None:
        """No more records come; readers end."""
        self._over = True
        self._wake()

    def tail(self, kinds: Container[int], max_bytes: int) -> bytes:
        """The last bytes of output of these kinds, for an error message."""
        parts: Deque[bytes] = deque()
        size = 0
        for record in reversed(self._records):
            if record.kind in kinds:
                parts.appendleft(record.payload)
                size += len(record.payload)
                if size >= max_bytes:
                    break
        return b"".join(parts)[-max_bytes:]

    async def read(self, start: int) -> AsyncIterator[LoopRecord]:
        """Records from number `start` on, as they come, until `close`."""
        position = start
        while True:
            changed = self._changed
            first = self._records[0].number if self._records else self._next
            if position < first:
                lost = first - position
                position = first
                yield LoopRecord(EVENT, position, event_payload("skipped", records=lost))
            while position < self._next and position >= self._first():
                yield self._records[position - self._first()]
                position += 1
            if position >= self._next:
                if self._over:
                    return
                if changed is self._changed:
                    await changed.wait()

    def _first(self) -> int:
        return self._records[0].number if self._records else self._next

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
