"""One channel's state, kept by the endpoint. PROTOCOL.md, "Closing" has it as a table.

Rules of this file: only `Endpoint` changes a channel, and a channel knows
neither frames' numbers nor the link.
"""

from collections import deque
from typing import Deque, Optional, Union

from tunnelkit.wire.frames import MAX_DATA_BYTES

#: Writes shorter than this share a buffer, and so a frame, when they pile up:
#: a thousand one-byte writes must not cost a thousand objects.
_SMALL_BYTES = 4096


class ChannelState:
    """Outbox, windows and ends of one channel.

    send_window: bytes we may still send before the peer gives credit.
    receive_window: bytes the peer may still send us.
    owed_credit: bytes that the application has used up and the peer has no credit for yet.
    close_payload: the closing detail as JSON, from the moment the application closed.
    has_turn: it waits in the endpoint's queue.
    """

    __slots__ = (
        "close_payload",
        "close_received",
        "close_sent",
        "eof_queued",
        "eof_received",
        "eof_sent",
        "has_turn",
        "id",
        "outbox",
        "outbox_bytes",
        "owed_credit",
        "receive_window",
        "send_window",
    )

    def __init__(self, channel_id: int, send_window: int, receive_window: int) -> None:
        self.id = channel_id
        self.send_window = send_window
        self.receive_window = receive_window
        self.owed_credit = 0
        self.outbox: Deque[Union[bytearray, memoryview]] = deque()
        self.outbox_bytes = 0
        self.eof_queued = False
        self.eof_sent = False
        self.eof_received = False
        self.close_payload: Optional[bytes] = None
        self.close_sent = False
        self.close_received = False
        self.has_turn = False

    @property
    def sendable(self) -> bool:
        """True if a frame of this channel could go out now."""
        if self.close_sent:
            return False
        if self.outbox:
            return self.send_window > 0
        return self.close_payload is not None or (self.eof_queued and not self.eof_sent)

    @property
    def wants_credit(self) -> bool:
        """True if the peer may still send, so that credit is of use to it."""
        return not (self.eof_received or self.close_received or self.close_sent)

    def put(self, data: bytes) -> None:
        """Queue bytes for sending."""
        outbox = self.outbox
        self.outbox_bytes += len(data)
        if len(data) >= _SMALL_BYTES:
            outbox.append(memoryview(data))
            return
        last = outbox[-1] if outbox else None
        if isinstance(last, bytearray) and len(last) + len(data) <= MAX_DATA_BYTES:
            last += data
        else:
            outbox.append(bytearray(data))

    def take(self, limit: int) -> memoryview:
        """Remove and return the next bytes to send, at most `limit`, as window allows."""
        limit = min(limit, self.send_window)
        head = memoryview(self.outbox[0])
        if len(head) <= limit:
            self.outbox.popleft()
            piece = head
        else:
            piece = head[:limit]
            self.outbox[0] = head[limit:]
        self.outbox_bytes -= len(piece)
        self.send_window -= len(piece)
        return piece

    def drop_outbox(self) -> None:
        """Drop bytes that were not sent yet."""
        self.outbox.clear()
        self.outbox_bytes = 0
