"""One terminal that watches a loop: it gets every event, and of much output the newest."""

from __future__ import annotations

import asyncio
from collections import deque

from tunnelkit.mux.channel import Channel
from tunnelkit.mux.loop_records import EVENT, LoopRecord, event_payload

#: Output that waits for a slow terminal; the oldest is skipped beyond it.
_MOST_WAITING_BYTES = 8 * 1024 * 1024
_MOST_EVENTS = 1000


class LoopWatcher:
    """Sends a loop's records to a terminal, and keeps them while the terminal is slow.

    Skipped output is named by a `skipped` event in its place. An event is never skipped for
    output: without the last one, `tk loop` would not know that its loop has ended.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._waiting: deque[LoopRecord] = deque()
        self._waiting_bytes = 0
        #: Events that stood before output that was skipped.
        self._events: deque[LoopRecord] = deque(maxlen=_MOST_EVENTS)
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
        self._waiting_bytes += len(record.payload)
        self._send_waiting()
        while self._waiting_bytes > _MOST_WAITING_BYTES and len(self._waiting) > 1:
            self._skip(self._waiting.popleft())

    def end(self) -> None:
        """Send all that waits; the channel is closed next."""
        self.channel.watch(None, None)
        self._send_waiting(at_end=True)

    def _skip(self, record: LoopRecord) -> None:
        self._waiting_bytes -= len(record.payload)
        if record.kind == EVENT:
            self._events.append(record)
        else:
            self._skipped += 1

    def _send_waiting(self, at_end: bool = False) -> None:
        while self._waiting and (at_end or not self.channel.is_full()):
            while self._events:
                self._write(self._events.popleft())
            record = self._waiting.popleft()
            self._waiting_bytes -= len(record.payload)
            if self._skipped:
                payload = event_payload("skipped", records=self._skipped)
                self._write(LoopRecord(EVENT, record.number, payload))
                self._skipped = 0
            self._write(record)

    def _write(self, record: LoopRecord) -> None:
        self.channel.write_nowait(record.encode())
