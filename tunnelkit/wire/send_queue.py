"""Frames that wait for their number: of new channels, credit, and channels with data or an end.

Rules of this file: openings go first, then credit, then one frame of each channel in turn.
"""

from collections import deque
from typing import Callable, Deque, Dict, List, Tuple

from tunnelkit.wire.channel_state import ChannelState
from tunnelkit.wire.frames import CREDIT, MAX_DATA_BYTES, Buffer, Kind
from tunnelkit.wire.outbound import Outbound


class SendQueue:
    """The next frames of one endpoint, in order. forget: called when both sides have closed."""

    def __init__(self, outbound: Outbound, forget: Callable[[ChannelState], None]) -> None:
        self._number = outbound.number
        self._forget = forget
        self.opens: Deque[Tuple[int, bytes]] = deque()
        #: A dict, for its order.
        self.credit_due: Dict[ChannelState, None] = {}
        self.ready: Deque[ChannelState] = deque()

    def wake(self, state: ChannelState) -> None:
        """Give a channel its turn if it has something that may go out."""
        if not state.has_turn and state.sendable:
            state.has_turn = True
            self.ready.append(state)

    def offer_credit(self, state: ChannelState, window_bytes: int) -> None:
        """Let the peer send what the application has used up, if that is much of the window."""
        # Credit in halves of the window: few frames, and the sender never runs dry.
        if state.owed_credit * 2 >= window_bytes and state.wants_credit:
            self.credit_due[state] = None

    def withdraw_credit(self, state: ChannelState) -> None:
        """Owe a channel nothing: its peer sends no more."""
        self.credit_due.pop(state, None)

    def put_next(self, buffers: List[Buffer]) -> int:
        """Number the next frame and add its buffers; return its size, 0 if there is none."""
        if self.opens:
            opened, payload = self.opens.popleft()
            return self._number(buffers, Kind.OPEN, opened, payload)
        if self.credit_due:
            owing, _ = self.credit_due.popitem()
            credit, owing.owed_credit = owing.owed_credit, 0
            owing.receive_window += credit
            return self._number(buffers, Kind.CREDIT, owing.id, CREDIT.pack(credit))
        while self.ready:
            state = self.ready.popleft()
            state.has_turn = False
            if state.sendable:
                size = self._put_channel(buffers, state)
                self.wake(state)
                return size
        return 0

    def _put_channel(self, buffers: List[Buffer], state: ChannelState) -> int:
        if state.outbox:
            return self._number(buffers, Kind.DATA, state.id, state.take(MAX_DATA_BYTES))
        if state.close_payload is None:
            state.eof_sent = True
            return self._number(buffers, Kind.EOF, state.id, b"")
        state.close_sent = True
        self.withdraw_credit(state)
        if state.close_received:
            self._forget(state)
        return self._number(buffers, Kind.CLOSE, state.id, state.close_payload)
