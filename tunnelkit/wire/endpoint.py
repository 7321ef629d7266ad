"""One end of a conversation: channels that stay while links come and go.

The driver's duty, in order: exchange hellos (handshake.py), `link_up` with the
peer's `received`, then feed what arrives to `receive` and write what `outgoing`
returns, until the link dies: `link_down`. Then the next link, the same way.

Rules of this file: a frame gets its number when it first goes out, stays in
`_unacked` until the peer has it, and goes out again, same number, after
`link_up`. So nothing is lost, doubled or reordered by any cut.
"""

import json
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Set

from tunnelkit.wire import events as ev
from tunnelkit.wire.channel import ChannelState
from tunnelkit.wire.errors import ChannelError, ProtocolError
from tunnelkit.wire.frames import (
    CREDIT,
    FIRST_UNNUMBERED,
    MAX_DATA_BYTES,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameDecoder,
    Kind,
    header,
)

#: Bytes a peer may send on a channel ahead of the reader. Bounds memory per
#: channel; window / RTT bounds a channel's speed (4 MiB: 26 MiB/s at 150 ms).
DEFAULT_WINDOW_BYTES = 4 * 1024 * 1024
MAX_CHANNELS = 4096


class _Numbered(NamedTuple):
    seq: int
    head: bytes
    payload: memoryview


class Endpoint:
    """The durable state of one side. `client` picks odd channel ids, the server even ones."""

    def __init__(self, *, client: bool, window_bytes: int = DEFAULT_WINDOW_BYTES) -> None:
        self.window_bytes = window_bytes
        self._peer_window: Optional[int] = None
        self._next_id = 1 if client else 2
        self._peer_parity = 0 if client else 1
        self._channels: Dict[int, ChannelState] = {}
        self._ready: Deque[int] = deque()
        self._ready_set: Set[int] = set()
        self._opens: Deque[bytes] = deque()
        self._open_ids: Deque[int] = deque()
        self._credit_due: Set[int] = set()
        self._pings: Deque[bytes] = deque()
        self._pongs: Deque[bytes] = deque()
        self._bye: Optional[str] = None
        self._decoder = FrameDecoder()
        self._up = False
        self._ack_due = False
        self._sent_seq = 0
        self._received_seq = 0
        self._unacked: Deque[_Numbered] = deque()
        self._resend: Deque[_Numbered] = deque()

    # -- the link ---------------------------------------------------------

    @property
    def received(self) -> int:
        """Highest frame number received in order; goes into our hello."""
        return self._received_seq

    @property
    def is_up(self) -> bool:
        """True between `link_up` and `link_down`."""
        return self._up

    def link_up(self, peer_received: int, peer_window: int) -> None:
        """A link is there and the peer has frames up to `peer_received`; send on after it.

        Raises ProtocolError if the peer's number can't be true, that is: state was lost.
        """
        lowest = self._unacked[0].seq - 1 if self._unacked else self._sent_seq
        if not lowest <= peer_received <= self._sent_seq:
            raise ProtocolError(
                f"peer has {peer_received}, we can go on only from {lowest} to {self._sent_seq}"
            )
        self._drop_acked(peer_received)
        self._resend = deque(self._unacked)
        self._decoder = FrameDecoder()
        if self._peer_window is None:
            self._peer_window = peer_window
            for state in self._channels.values():
                state.send_window = peer_window
                self._wake(state)
        self._ack_due = False
        self._up = True

    def link_down(self) -> None:
        """The link died. Channels stay; `outgoing` is empty until the next `link_up`."""
        self._up = False
        self._pings.clear()
        self._pongs.clear()

    def receive(self, data: bytes) -> List[ev.Event]:
        """Take bytes from the link; return what they mean, in order."""
        happened: List[ev.Event] = []
        for frame in self._decoder.feed(data):
            if frame.kind >= FIRST_UNNUMBERED:
                self._unnumbered(frame, happened)
            elif frame.seq == self._received_seq + 1:
                self._received_seq = frame.seq
                self._ack_due = True
                self._numbered(frame, happened)
            elif frame.seq <= self._received_seq:
                self._ack_due = True
            else:
                raise ProtocolError(f"frame {frame.seq} after {self._received_seq}")
        return happened

    def has_outgoing(self) -> bool:
        """True if `outgoing` would return something."""
        return self._up and bool(
            self._resend
            or self._ack_due
            or self._opens
            or self._credit_due
            or self._ready
            or self._pings
            or self._pongs
            or self._bye is not None
        )

    def outgoing(self, limit_bytes: int) -> List[Any]:
        """The next buffers for the link, in order, about `limit_bytes` in all.

        Everything returned must be written to this link, or the link be given up.
        """
        buffers: List[Any] = []
        if not self._up:
            return buffers
        budget = limit_bytes
        budget -= self._put_unnumbered(buffers)
        while self._resend and budget > 0:
            frame = self._resend.popleft()
            buffers.append(frame.head)
            if len(frame.payload):
                buffers.append(frame.payload)
            budget -= len(frame.head) + len(frame.payload)
        if self._resend:
            return buffers
        while budget > 0:
            sent = self._put_next(buffers)
            if not sent:
                break
            budget -= sent
        if self._bye is not None and budget > 0:
            payload = self._bye.encode("utf-8")[:1024]
            buffers.append(header(Kind.BYE, 0, 0, len(payload)) + payload)
            self._bye = None
        return buffers

    def ping(self, payload: bytes = b"") -> None:
        """Queue a PING; the peer echoes `payload` in a PONG."""
        self._pings.append(payload[:64])

    def bye(self, reason: str) -> None:
        """Queue the end of the whole conversation, after all else that can go out."""
        self._bye = reason

    @property
    def unacked_bytes(self) -> int:
        """Bytes kept for sending again."""
        return sum(len(frame.payload) + len(frame.head) for frame in self._unacked)

    # -- channels ---------------------------------------------------------

    def open(self, what: Dict[str, Any]) -> int:
        """Open a channel; `what` (a JSON object) tells the peer what it is for. Returns its id.

        Data may be sent at once; a peer that refuses closes it with a detail.
        """
        if len(self._channels) >= MAX_CHANNELS:
            raise ChannelError("too many open channels")
        payload = json.dumps(what).encode("utf-8")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise ChannelError(f"channel header of {len(payload)} bytes is too large")
        channel = self._next_id
        self._next_id += 2
        self._channels[channel] = ChannelState(channel, self._peer_window or 0, self.window_bytes)
        self._opens.append(payload)
        self._open_ids.append(channel)
        return channel

    def send(self, channel: int, data: bytes) -> None:
        """Queue bytes. The caller holds back while `buffered` is high. Silently dropped once
        the peer has closed: its ChannelClosed event is on the way."""
        state = self._channels.get(channel)
        if state is None or state.close_received:
            return
        if state.eof_queued or state.close_detail is not None:
            raise ChannelError(f"channel {channel}: send after end")
        if data:
            state.put(data)
            self._wake(state)

    def send_eof(self, channel: int) -> None:
        """Tell the peer, after all queued data, that no more comes. Idempotent."""
        state = self._channels.get(channel)
        if state is not None and state.close_detail is None and not state.eof_queued:
            state.eof_queued = True
            self._wake(state)

    def close(self, channel: int, detail: Optional[Dict[str, Any]] = None) -> None:
        """End the channel after all queued data. Idempotent: the first detail counts."""
        state = self._channels.get(channel)
        if state is not None and state.close_detail is None:
            state.close_detail = dict(detail or {})
            self._wake(state)

    def abort(self, channel: int, detail: Optional[Dict[str, Any]] = None) -> None:
        """End the channel now and drop what was queued."""
        state = self._channels.get(channel)
        if state is not None and not state.close_sent:
            state.drop_outbox()
            if state.close_detail is None:
                state.close_detail = dict(detail or {})
            self._wake(state)

    def consume(self, channel: int, count: int) -> None:
        """The application has used up `count` received bytes: let the peer send that much."""
        state = self._channels.get(channel)
        if state is None or state.close_received or state.eof_received:
            return
        state.owed_credit += count
        # Credit in halves of the window: few frames, and the sender never runs dry.
        if state.owed_credit * 2 >= self.window_bytes:
            self._credit_due.add(channel)

    def buffered(self, channel: int) -> int:
        """Bytes queued on a channel and not yet numbered; 0 for a closed channel."""
        state = self._channels.get(channel)
        return 0 if state is None else state.outbox_bytes

    @property
    def open_channels(self) -> int:
        """How many channels are not fully closed."""
        return len(self._channels)

    # -- inside: receiving ------------------------------------------------

    def _unnumbered(self, frame: Frame, happened: List[ev.Event]) -> None:
        if frame.kind == Kind.ACK:
            if frame.seq > self._sent_seq:
                raise ProtocolError(f"peer acknowledges {frame.seq}, we sent {self._sent_seq}")
            self._drop_acked(frame.seq)
        elif frame.kind == Kind.PING:
            self._pongs.append(frame.payload)
        elif frame.kind == Kind.PONG:
            happened.append(ev.PongReceived(frame.payload))
        else:
            happened.append(ev.ByeReceived(frame.payload.decode("utf-8", "replace")))

    def _numbered(self, frame: Frame, happened: List[ev.Event]) -> None:
        if frame.kind == Kind.OPEN:
            self._peer_opened(frame, happened)
            return
        state = self._channels.get(frame.channel)
        if state is None or state.close_received:
            raise ProtocolError(f"{frame.kind.name} on unknown channel {frame.channel}")
        if frame.kind == Kind.DATA:
            self._data(state, frame.payload, happened)
        elif frame.kind == Kind.EOF:
            state.eof_received = True
            if state.close_detail is None:
                happened.append(ev.EofReceived(state.id))
        elif frame.kind == Kind.CREDIT:
            state.send_window += CREDIT.unpack(frame.payload)[0]
            self._wake(state)
        else:
            self._peer_closed(state, _parse_object(frame.payload), happened)

    def _peer_opened(self, frame: Frame, happened: List[ev.Event]) -> None:
        if frame.channel % 2 != self._peer_parity or frame.channel in self._channels:
            raise ProtocolError(f"peer opened channel {frame.channel}")
        if len(self._channels) >= MAX_CHANNELS:
            raise ProtocolError("peer opened too many channels")
        self._channels[frame.channel] = ChannelState(
            frame.channel, self._peer_window or 0, self.window_bytes
        )
        happened.append(ev.ChannelOpened(frame.channel, _parse_object(frame.payload)))

    def _data(self, state: ChannelState, payload: bytes, happened: List[ev.Event]) -> None:
        if state.eof_received or len(payload) > state.receive_window:
            raise ProtocolError(f"channel {state.id}: data beyond its end or its window")
        state.receive_window -= len(payload)
        # After our own close nobody reads any more.
        if state.close_detail is None:
            happened.append(ev.DataReceived(state.id, payload))

    def _peer_closed(
        self, state: ChannelState, detail: Dict[str, Any], happened: List[ev.Event]
    ) -> None:
        state.close_received = True
        state.drop_outbox()
        self._credit_due.discard(state.id)
        happened.append(ev.ChannelClosed(state.id, detail))
        if state.close_sent:
            del self._channels[state.id]
            return
        if state.close_detail is None:
            state.close_detail = {}
        self._wake(state)

    def _drop_acked(self, seq: int) -> None:
        unacked = self._unacked
        while unacked and unacked[0].seq <= seq:
            unacked.popleft()
        resend = self._resend
        while resend and resend[0].seq <= seq:
            resend.popleft()

    # -- inside: sending --------------------------------------------------

    def _wake(self, state: ChannelState) -> None:
        if state.id not in self._ready_set and state.sendable:
            self._ready_set.add(state.id)
            self._ready.append(state.id)

    def _number(self, buffers: List[Any], kind: Kind, channel: int, payload: Any) -> int:
        self._sent_seq += 1
        view = memoryview(payload)
        head = header(kind, channel, self._sent_seq, len(view))
        self._unacked.append(_Numbered(self._sent_seq, head, view))
        buffers.append(head)
        if len(view):
            buffers.append(view)
        return len(head) + len(view)

    def _put_unnumbered(self, buffers: List[Any]) -> int:
        size = 0
        if self._ack_due:
            self._ack_due = False
            buffers.append(header(Kind.ACK, 0, self._received_seq, 0))
        for kind, queue in ((Kind.PONG, self._pongs), (Kind.PING, self._pings)):
            while queue:
                payload = queue.popleft()
                buffers.append(header(kind, 0, 0, len(payload)) + payload)
                size += len(buffers[-1])
        return size

    def _put_next(self, buffers: List[Any]) -> int:
        if self._opens:
            return self._number(buffers, Kind.OPEN, self._open_ids.popleft(), self._opens.popleft())
        if self._credit_due:
            owing = self._channels[self._credit_due.pop()]
            credit, owing.owed_credit = owing.owed_credit, 0
            owing.receive_window += credit
            return self._number(buffers, Kind.CREDIT, owing.id, CREDIT.pack(credit))
        while self._ready:
            # Round robin: each channel that can send gets one frame a turn.
            channel = self._ready.popleft()
            self._ready_set.discard(channel)
            state = self._channels.get(channel)
            if state is not None and state.sendable:
                size = self._put_channel(buffers, state)
                self._wake(state)
                return size
        return 0

    def _put_channel(self, buffers: List[Any], state: ChannelState) -> int:
        if state.outbox:
            return self._number(buffers, Kind.DATA, state.id, state.take(MAX_DATA_BYTES))
        if state.eof_queued and not state.eof_sent and state.close_detail is None:
            state.eof_sent = True
            return self._number(buffers, Kind.EOF, state.id, b"")
        state.close_sent = True
        self._credit_due.discard(state.id)
        payload = json.dumps(state.close_detail).encode("utf-8")
        if state.close_received:
            del self._channels[state.id]
        return self._number(buffers, Kind.CLOSE, state.id, payload)


def _parse_object(payload: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(payload.decode("utf-8"))
    except ValueError as error:
        raise ProtocolError(f"bad JSON in a frame: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError("a frame's JSON is no object")
    return value
