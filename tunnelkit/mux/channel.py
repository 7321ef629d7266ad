"""A channel as the application sees it: read, write, and close with a final detail."""

import asyncio
from collections import deque
from typing import Callable, Deque, Dict, Mapping, Optional, Protocol

from tunnelkit.wire.endpoint import Endpoint

#: `write` waits while more than this is queued and not yet numbered.
HIGH_WATER_BYTES = 512 * 1024
#: Unread pieces are joined up to this size, so that many tiny ones don't cost an object each.
_JOIN_BYTES = 4096
#: A longer message waits for no other one.
_SMALL_BYTES = 4096


class ChannelOwner(Protocol):
    """The Mux that a channel belongs to."""

    endpoint: Endpoint

    def flush(self) -> None:
        """Put on the link what is queued."""

    def flush_soon(self) -> None:
        """Put it there with what other channels write in this round of the event loop."""

    def consumed(self, channel_id: int, count: int) -> None:
        """Give the peer credit for bytes that the application has read."""

    def forget(self, channel: "Channel") -> None:
        """Drop a channel that was closed here."""

    def wake_when_drained(self, channel: "Channel") -> None:
        """Call the channel's `drained` once its queue is low."""


class Channel:
    """One bidirectional stream of a Mux. Made by `Mux.open` or handed to its `on_channel`.

    It lives through link cuts; it ends by `close`, by the peer, or with its Mux.
    """

    def __init__(self, mux: ChannelOwner, channel_id: int) -> None:
        self.id = channel_id
        self._mux = mux
        self._chunks: Deque[bytes] = deque()
        self._eof = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._detail: Optional[Dict[str, object]] = None
        self._over = asyncio.Event()
        self._cut = False
        self._on_news: Optional[Callable[[], None]] = None
        self._on_room: Optional[Callable[[], None]] = None

    # -- for the application ----------------------------------------------

    async def read(self) -> bytes:
        """Return the next bytes, as they came; b"" at the end of the stream."""
        while not self._chunks:
            if self._eof:
                return b""
            self._readable.clear()
            await self._readable.wait()
        return self._pop()

    def watch(
        self, on_news: Optional[Callable[[], None]], on_room: Optional[Callable[[], None]]
    ) -> None:
        """Use callbacks instead of `read` and `write`: one task switch less for each piece.

        on_news: called at once when something came (`take` it), the end included.
        on_room: called when the queue is low again after `is_full`. None stops the calls.
        """
        self._on_news, self._on_room = on_news, on_room

    def take(self) -> bytes:
        """Return the next piece that has arrived; b"" if nothing has."""
        return self._pop() if self._chunks else b""

    def read_nowait(self) -> bytes:
        """Return all bytes that have arrived; b"" if nothing has."""
        parts = []
        while self._chunks:
            parts.append(self._pop())
        return b"".join(parts)

    async def write(self, data: bytes) -> None:
        """Send bytes; wait while too much is queued.

        Bytes written after the peer has closed are dropped (see `closed`)."""
        self.write_nowait(data)
        await self.room()

    async def room(self) -> None:
        """Wait while too much is queued."""
        while not self._over.is_set() and self._mux.endpoint.buffered(self.id) > HIGH_WATER_BYTES:
            self._writable.clear()
            self._mux.wake_when_drained(self)
            await self._writable.wait()

    def write_nowait(self, data: bytes) -> None:
        """Send bytes without waiting; for small messages."""
        if not self._over.is_set():
            self._mux.endpoint.send(self.id, data)
            self._mux.flush()

    def write_soon(self, data: bytes) -> None:
        """Send a small message without waiting, together with those of other channels.

        For many peers that are asked at once, and answer at once.
        """
        if not self._over.is_set():
            self._mux.endpoint.send(self.id, data)
            if len(data) <= _SMALL_BYTES:
                self._mux.flush_soon()
            else:
                self._mux.flush()

    def write_eof(self) -> None:
        """Tell the peer that no more bytes come."""
        self._mux.endpoint.send_eof(self.id)
        self._mux.flush()

    def close(self, detail: Optional[Mapping[str, object]] = None) -> None:
        """End the channel once all written bytes are out; the peer gets `detail`."""
        self._mux.endpoint.close(self.id, detail)
        self._mux.forget(self)
        self._mux.flush()
        self.ended(None)

    def abort(self, detail: Optional[Mapping[str, object]] = None) -> None:
        """End the channel and drop bytes that were not sent.

        What `write_soon` was given in this round counts as sent.
        """
        self._mux.flush()
        self._mux.endpoint.abort(self.id, detail)
        self._mux.forget(self)
        self._mux.flush()
        self.ended(None)

    def is_full(self) -> bool:
        """True if the writer should wait for `on_room`, which is then certain to be called."""
        if self._over.is_set() or self._mux.endpoint.buffered(self.id) <= HIGH_WATER_BYTES:
            return False
        self._mux.wake_when_drained(self)
        return True

    @property
    def queued_bytes(self) -> int:
        """Bytes that were written and are still queued."""
        return self._mux.endpoint.buffered(self.id)

    @property
    def is_over(self) -> bool:
        """True once the channel is closed by either side."""
        return self._over.is_set()

    @property
    def was_cut(self) -> bool:
        """True if the channel ended with the whole conversation, not by the peer's close."""
        return self._cut

    @property
    def last_word_is_error(self) -> bool:
        """True if the channel is over and its peer, or the Mux, named an error."""
        return bool(self._over.is_set() and (self._detail or {}).get("error"))

    @property
    def at_eof(self) -> bool:
        """True once everything the peer will ever send was read."""
        return self._eof and not self._chunks

    async def closed(self) -> Optional[Dict[str, object]]:
        """Wait for the end and return the peer's detail.

        {"error": why} if the Mux ended; None if this side closed first."""
        await self._over.wait()
        return self._detail

    # -- for the Mux ------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Bytes from the peer."""
        chunks = self._chunks
        if chunks and len(chunks[-1]) + len(data) <= _JOIN_BYTES:
            chunks[-1] += data
        else:
            chunks.append(data)
        self._news()

    def received_eof(self) -> None:
        """The peer's end of stream."""
        self._eof = True
        self._news()

    def drained(self) -> None:
        """The queue is low again."""
        self._writable.set()
        if self._on_room is not None:
            self._on_room()

    def ended(self, detail: Optional[Dict[str, object]], *, cut: bool = False) -> None:
        """The channel is over, `cut` with its conversation; what came before can be read."""
        if not self._over.is_set():
            self._detail = detail
            self._cut = cut
            self._eof = True
            self._over.set()
            self._writable.set()
            self._news()

    def _news(self) -> None:
        self._readable.set()
        if self._on_news is not None:
            self._on_news()

    def _pop(self) -> bytes:
        data = self._chunks.popleft()
        self._mux.consumed(self.id, len(data))
        return data
