"""One end of a conversation: channels that stay while links come and go.

The driver's duty, in order: exchange hellos (handshake.py), `link_up` with the
peer's `received`, then feed what arrives to `receive` and write what `outgoing`
returns, until the link dies: `link_down`. Then the next link, the same way.

Rules of this file: a frame gets its number when it first goes out, is kept by
`Outbound` until the peer has it, and goes out again, same number, after
`link_up`. So nothing is lost, doubled or reordered by any cut. What waits here
without a number is bounded: outboxes by the caller (`buffered`), all else by
the number of channels.
"""

from collections import deque
from typing import Deque, Dict, List, Mapping, Optional

from tunnelkit.wire import events as ev
from tunnelkit.wire.channel_state import ChannelState
from tunnelkit.wire.errors import ChannelError, ProtocolError
from tunnelkit.wire.frames import (
    CREDIT,
    FIRST_UNNUMBERED,
    MAX_BYE_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_PING_BYTES,
    Buffer,
    Frame,
    FrameDecoder,
    Kind,
    header,
)
from tunnelkit.wire.json_payload import encode_detail, encode_object, parse_object
from tunnelkit.wire.outbound import Outbound
from tunnelkit.wire.send_queue import SendQueue

#: Bytes a peer may send on a channel ahead of the reader. Bounds memory per
#: channel; window / RTT bounds a channel's speed (4 MiB: 26 MiB/s at 150 ms).
DEFAULT_WINDOW_BYTES = 4 * 1024 * 1024
#: Channels one side may have opened and not yet seen closed on both sides.
MAX_CHANNELS = 4096
MAX_CHANNEL_ID = 2**32 - 1
#: Bytes received after which an acknowledgement is urgent: the peer keeps that much.
ACK_AT_BYTES = 256 * 1024
#: PINGs and PONGs kept while the link takes nothing; older ones are dropped.
_MAX_PINGS = 8


class Endpoint:
    """The durable state of one side. `client` picks odd channel ids, the server even ones.

    Every method takes time proportional to what it returns or takes, and none blocks.
    """

    def __init__(self, *, client: bool, window_bytes: int = DEFAULT_WINDOW_BYTES) -> None:
        self.window_bytes = window_bytes
        self._peer_window: Optional[int] = None
        self._next_id = 1 if client else 2
        self._peer_last_id = 0 if client else -1
        self._own_channels = 0
        self._channels: Dict[int, ChannelState] = {}
        self._pings: Deque[bytes] = deque(maxlen=_MAX_PINGS)
        self._pongs: Deque[bytes] = deque(maxlen=_MAX_PINGS)
        self._bye: Optional[bytes] = None
        self._bye_due = False
        self._decoder = FrameDecoder()
        self._up = False
        self._ack_due = False
        self._since_ack_bytes = 0
        self._received_seq = 0
        self._outbound = Outbound()
        self._queue = SendQueue(self._outbound, self._forget)

    # -- the link ---------------------------------------------------------

    @property
    def received(self) -> int:
        """Highest frame number received in order; goes into our hello. Read it only after
        `link_down`: an old link that still carries acknowledgements makes it stale."""
        return self._received_seq

    @property
    def is_up(self) -> bool:
        """True between `link_up` and `link_down`."""
        return self._up

    def link_up(self, peer_received: int, peer_window: int) -> None:
        """A link is there and the peer has frames up to `peer_received`; send on after it.

        `peer_window` (bytes) counts on the first link only; it may not change after.
        Raises ProtocolError if the peer's numbers can't be true, that is: state was lost.
        """
        if peer_window < 1 or self._peer_window not in (None, peer_window):
            raise ProtocolError(f"peer's window is {peer_window}, it was {self._peer_window}")
        self._outbound.rewind(peer_received)
        self._decoder = FrameDecoder()
        if self._peer_window is None:
            self._peer_window = peer_window
            for state in self._channels.values():
                state.send_window = peer_window
                self._queue.wake(state)
        self._ack_due = False
        self._bye_due = self._bye is not None
        self._up = True

    def link_down(self) -> None:
        """The link died. Channels stay; `outgoing` is empty until the next `link_up`."""
        self._up = False
        self._pings.clear()
        self._pongs.clear()

    def receive(self, data: bytes) -> List[ev.Event]:
        """Take bytes from the link; return what they mean, in order."""
        happened: List[ev.Event] = []
        self._since_ack_bytes += len(data)
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
        return self._up and (self._ack_due or self._has_frames())

    @property
    def ack_can_wait(self) -> bool:
        """True if all that is outgoing is an acknowledgement that is not urgent yet: it may
        wait, for some milliseconds, for another frame to go with."""
        return self._ack_due and self._since_ack_bytes < ACK_AT_BYTES and not self._has_frames()

    def _has_frames(self) -> bool:
        """True if there is more to send than an acknowledgement."""
        queue = self._queue
        return bool(
            self._outbound.resend
            or queue.ready
            or queue.credit_due
            or queue.opens
            or self._pings
            or self._pongs
            or self._bye_due
        )

    def outgoing(self, limit_bytes: int) -> List[Buffer]:
        """The next buffers for the link, in order, about `limit_bytes` in all.

        Everything returned must be written to this link, or the link be given up.
        """
        buffers: List[Buffer] = []
        if not self._up:
            return buffers
        budget = limit_bytes - self._put_unnumbered(buffers)
        budget -= self._outbound.put_resend(buffers, budget)
        if self._outbound.resend:
            return buffers
        while budget > 0:
            sent = self._queue.put_next(buffers)
            if not sent:
                break
            budget -= sent
        if self._bye_due and self._bye is not None and budget > 0:
            self._bye_due = False
            buffers.append(header(Kind.BYE, 0, 0, len(self._bye)) + self._bye)
        return buffers

    def ping(self, payload: bytes = b"") -> None:
        """Queue a PING; the peer echoes `payload` (at most 64 bytes) in a PONG. It is dropped
        with the link, and when too many wait."""
        self._pings.append(payload[:MAX_PING_BYTES])

    def bye(self, reason: str) -> None:
        """Queue the end of the whole conversation, after all else that can go out.

        It has no number: it is said again on every later link, should there be one.
        """
        self._bye = reason.encode("utf-8", "replace")[:MAX_BYE_BYTES]
        self._bye_due = True

    @property
    def unacked_bytes(self) -> int:
        """Bytes kept for sending again."""
        return self._outbound.unacked_bytes

    # -- channels ---------------------------------------------------------

    def open(self, what: Mapping[str, object]) -> int:
        """Open a channel; `what` (a JSON object) tells the peer what it is for. Returns its id.

        Data may be sent at once; a peer that refuses closes it with a detail. Raises
        ChannelError if there are too many, or `what` is too large.
        """
        if self._own_channels >= MAX_CHANNELS or self._next_id > MAX_CHANNEL_ID:
            raise ChannelError("too many open channels")
        payload = encode_object(what)
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise ChannelError(f"channel header of {len(payload)} bytes is too large")
        channel = self._next_id
        self._next_id += 2
        self._own_channels += 1
        self._channels[channel] = ChannelState(channel, self._peer_window or 0, self.window_bytes)
        self._queue.opens.append((channel, payload))
        return channel

    def send(self, channel: int, data: bytes) -> None:
        """Queue bytes. The caller holds back while `buffered` is high. Silently dropped once
        the peer has closed: its ChannelClosed event is on the way."""
        state = self._channels.get(channel)
        if state is None or state.close_received:
            return
        if state.eof_queued or state.close_payload is not None:
            raise ChannelError(f"channel {channel}: send after end")
        # A caller's buffer may change before the last resend: keep bytes only.
        data = bytes(data)
        if data:
            state.put(data)
            self._queue.wake(state)

    def send_eof(self, channel: int) -> None:
        """Tell the peer, after all queued data, that no more comes. Idempotent."""
        state = self._channels.get(channel)
        if state is not None and state.close_payload is None and not state.eof_queued:
            state.eof_queued = True
            self._queue.wake(state)

    def close(self, channel: int, detail: Optional[Mapping[str, object]] = None) -> None:
        """End the channel after all queued data. Idempotent: the first detail counts.

        Nobody reads any more: what arrives from now on is dropped, and credited, so that a
        peer that answers while it reads can still take our queued data.
        """
        state = self._channels.get(channel)
        if state is not None and state.close_payload is None:
            state.close_payload = encode_detail(detail or {})
            state.owed_credit = self.window_bytes - state.receive_window
            self._queue.offer_credit(state, self.window_bytes)
            self._queue.wake(state)

    def abort(self, channel: int, detail: Optional[Mapping[str, object]] = None) -> None:
        """End the channel now and drop what was queued."""
        state = self._channels.get(channel)
        if state is not None and not state.close_sent:
            state.drop_outbox()
            self.close(channel, detail)
            self._queue.wake(state)

    def consume(self, channel: int, count: int) -> None:
        """The application has used up `count` received bytes: let the peer send that much.

        Raises ChannelError for more than was received.
        """
        state = self._channels.get(channel)
        if state is None or state.close_payload is not None:
            return
        if not 0 <= count <= self.window_bytes - state.receive_window - state.owed_credit:
            raise ChannelError(f"channel {channel}: {count} bytes consumed, fewer received")
        state.owed_credit += count
        self._queue.offer_credit(state, self.window_bytes)

    def buffered(self, channel: int) -> int:
        """Bytes queued on a channel and not yet numbered; 0 for a closed channel."""
        state = self._channels.get(channel)
        return 0 if state is None else state.outbox_bytes

    @property
    def open_channels(self) -> int:
        """Number of channels that are not fully closed."""
        return len(self._channels)

    # -- inside: receiving ------------------------------------------------

    def _unnumbered(self, frame: Frame, happened: List[ev.Event]) -> None:
        if frame.kind == Kind.ACK:
            self._outbound.acknowledged(frame.seq)
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
            self._eof(state, happened)
        elif frame.kind == Kind.CREDIT:
            self._credit(state, CREDIT.unpack(frame.payload)[0])
        else:
            self._peer_closed(state, parse_object(frame.payload), happened)

    def _peer_opened(self, frame: Frame, happened: List[ev.Event]) -> None:
        # Ids of one side only grow, by twos: so none is ever used again.
        if frame.channel <= self._peer_last_id or (frame.channel - self._peer_last_id) % 2:
            raise ProtocolError(f"peer opened channel {frame.channel}")
        if len(self._channels) - self._own_channels >= MAX_CHANNELS:
            raise ProtocolError("peer opened too many channels")
        self._peer_last_id = frame.channel
        self._channels[frame.channel] = ChannelState(
            frame.channel, self._peer_window or 0, self.window_bytes
        )
        happened.append(ev.ChannelOpened(frame.channel, parse_object(frame.payload)))

    def _data(self, state: ChannelState, payload: bytes, happened: List[ev.Event]) -> None:
        if state.eof_received or len(payload) > state.receive_window:
            raise ProtocolError(f"channel {state.id}: data beyond its end or its window")
        state.receive_window -= len(payload)
        if state.close_payload is None:
            happened.append(ev.DataReceived(state.id, payload))
        else:
            state.owed_credit += len(payload)
            self._queue.offer_credit(state, self.window_bytes)

    def _eof(self, state: ChannelState, happened: List[ev.Event]) -> None:
        if state.eof_received:
            raise ProtocolError(f"channel {state.id}: a second EOF")
        state.eof_received = True
        self._queue.withdraw_credit(state)
        if state.close_payload is None:
            happened.append(ev.EofReceived(state.id))

    def _credit(self, state: ChannelState, count: int) -> None:
        state.send_window += count
        if count < 1 or state.send_window > (self._peer_window or 0):
            raise ProtocolError(f"channel {state.id}: {count} bytes of credit, not owed")
        self._queue.wake(state)

    def _peer_closed(
        self, state: ChannelState, detail: Dict[str, object], happened: List[ev.Event]
    ) -> None:
        state.close_received = True
        state.drop_outbox()
        self._queue.withdraw_credit(state)
        happened.append(ev.ChannelClosed(state.id, detail))
        if state.close_sent:
            self._forget(state)
            return
        if state.close_payload is None:
            state.close_payload = b"{}"
        self._queue.wake(state)

    def _forget(self, state: ChannelState) -> None:
        del self._channels[state.id]
        if state.id % 2 == self._next_id % 2:
            self._own_channels -= 1

    # -- inside: sending --------------------------------------------------

    def _put_unnumbered(self, buffers: List[Buffer]) -> int:
        size = 0
        if self._ack_due:
            self._ack_due = False
            self._since_ack_bytes = 0
            buffers.append(header(Kind.ACK, 0, self._received_seq, 0))
        for kind, queue in ((Kind.PONG, self._pongs), (Kind.PING, self._pings)):
            while queue:
                payload = queue.popleft()
                buffers.append(header(kind, 0, 0, len(payload)) + payload)
                size += len(buffers[-1])
        return size
