"""Numbered frames that were sent: kept until acknowledged, sent again after a cut.

Rules of this file: a frame gets its number here and never another one; only an
acknowledgement removes it.
"""

from collections import deque
from typing import Deque, List, NamedTuple

from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.frames import Buffer, Kind, header


class _Numbered(NamedTuple):
    seq: int
    head: bytes
    payload: memoryview


class Outbound:
    """The frames sent and not yet acknowledged, in order.

    sent_seq: the last number given; 0 before the first.
    unacked_bytes: size of the frames that are kept, headers included.
    resend: old frames that wait to go out again; new ones must wait behind them.
    """

    def __init__(self) -> None:
        self.sent_seq = 0
        self.unacked_bytes = 0
        self._unacked: Deque[_Numbered] = deque()
        self.resend: Deque[_Numbered] = deque()

    def number(self, buffers: List[Buffer], kind: Kind, channel: int, payload: Buffer) -> int:
        """Number a new frame, keep it and add its buffers; returns its size in bytes."""
        self.sent_seq += 1
        view = memoryview(payload)
        head = header(kind, channel, self.sent_seq, len(view))
        self._unacked.append(_Numbered(self.sent_seq, head, view))
        size = len(head) + len(view)
        self.unacked_bytes += size
        buffers.append(head)
        if view:
            buffers.append(view)
        return size

    def acknowledged(self, seq: int) -> None:
        """Drop the frames up to `seq`: the peer has them."""
        if seq > self.sent_seq:
            raise ProtocolError(f"peer acknowledges {seq}, we sent {self.sent_seq}")
        unacked = self._unacked
        while unacked and unacked[0].seq <= seq:
            frame = unacked.popleft()
            self.unacked_bytes -= len(frame.head) + len(frame.payload)
        resend = self.resend
        while resend and resend[0].seq <= seq:
            resend.popleft()

    def rewind(self, peer_received: int) -> None:
        """A new link is there: all after `peer_received` goes out again, before anything new.

        Raises ProtocolError if we no longer have, or never sent, what the peer needs next.
        """
        lowest = self._unacked[0].seq - 1 if self._unacked else self.sent_seq
        if not lowest <= peer_received <= self.sent_seq:
            raise ProtocolError(
                f"peer has {peer_received}, we can go on only from {lowest} to {self.sent_seq}"
            )
        self.acknowledged(peer_received)
        self.resend = deque(self._unacked)

    def put_resend(self, buffers: List[Buffer], budget: int) -> int:
        """Add frames to send again until `budget` bytes are used up; returns their size."""
        size = 0
        while self.resend and size < budget:
            frame = self.resend.popleft()
            buffers.append(frame.head)
            if frame.payload:
                buffers.append(frame.payload)
            size += len(frame.head) + len(frame.payload)
        return size
