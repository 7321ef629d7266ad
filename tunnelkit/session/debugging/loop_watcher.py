"""One terminal that watches a loop: it gets every event, and of much output the newest."""

from __future__ import annotations

import asyncio
from collections import deque

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload

#: Output that waits for a slow terminal; the oldest is skipped beyond it.
_MOST_WAITING_BYTES = 8 * 1024 * 1024
#: Events that stood before skipped output; the oldest are skipped beyond either.
_MOST_EVENTS = 1000
_MOST_EVENTS_BYTES = 1024 * 1024
#: An object for each record, however short its payload is.
_RECORD_BYTES = 200


class LoopWatcher:
    """Sends a loop's records to a terminal, and keeps them while the terminal is slow.

    What is skipped is named by a `skipped` event in its place. The newest event is never skipped:
    without the last one, `tk loop` would not know that its loop has ended.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._waiting: deque[LoopRecord] = deque()
        self._waiting_bytes = 0
        #: Events that stood before output that was skipped.
        self._events: deque[LoopRecord] = deque()
        self._events_bytes = 0
        self._skipped = 0

    def begin(self) -> None:
        """Send on what waits whenever the terminal has read enough. Within an event loop."""
        loop = asyncio.get_running_loop()

        def has_room() -> None:
            # The Mux calls this while it takes what is queued: writing has to wait for its end.
            loop.call_soon(self._send_waiting)

        self.channel.watch(None, has_room)

    def send(self, record: LoopRecord) -> None:
        """Send a record now, or keep it behind those that wait."""
        self._waiting.append(record)
        self._waiting_bytes += _size_bytes(record)
        self._send_waiting()
        while self._waiting_bytes > _MOST_WAITING_BYTES and len(self._waiting) > 1:
            self._skip(self._waiting.popleft())

    def end(self) -> None:
        """Send all that waits; the channel is closed next."""
        self.channel.watch(None, None)
        self._send_waiting(at_end=True)

    def _skip(self, record: LoopRecord) -> None:
        self._waiting_bytes -= _size_bytes(record)
        if record.kind != EVENT:
            self._skipped += 1
            return
        self._events.append(record)
        self._events_bytes += _size_bytes(record)
        while len(self._events) > 1 and self._has_too_many_events():
            self._events_bytes -= _size_bytes(self._events.popleft())
            self._skipped += 1

    def _has_too_many_events(self) -> bool:
        return len(self._events) > _MOST_EVENTS or self._events_bytes > _MOST_EVENTS_BYTES

    def _send_waiting(self, at_end: bool = False) -> None:
        while self._waiting and (at_end or not self.channel.is_full()):
            while self._events:
                self._write(self._events.popleft())
            self._events_bytes = 0
            record = self._waiting.popleft()
            self._waiting_bytes -= _size_bytes(record)
            if self._skipped:
                payload = event_payload("skipped", records=self._skipped)
                self._write(LoopRecord(EVENT, record.number, payload))
                self._skipped = 0
            self._write(record)

    def _write(self, record: LoopRecord) -> None:
        self.channel.write_nowait(record.encode())


def _size_bytes(record: LoopRecord) -> int:
    return _RECORD_BYTES + len(record.payload)
