"""Mux: an Endpoint, its channels, and the link that carries them at the moment."""

import asyncio
import time
from typing import Callable, Dict, List, Mapping, Optional, Set

from tunnelkit.mux.channel import HIGH_WATER_BYTES, Channel
from tunnelkit.mux.fd_transport import FdLink
from tunnelkit.mux.malloc import give_back
from tunnelkit.wire import events as ev
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.frames import Buffer
from tunnelkit.wire.handshake import NO_ID, Hello, Status

#: Bytes pulled from the endpoint at a time: what is committed to the link can't be
#: overtaken by a more urgent frame, so keep it near one socket buffer.
_PULL_BYTES = 256 * 1024
#: An acknowledgement waits so long for a frame to go with: nothing waits for it, and alone it
#: costs a packet, and a wake-up of every process on the way.
_ACK_DELAY_S = 0.02
#: Small messages of one round of the event loop that go out together.
_TOGETHER = 16
_TOLD_FAILURES = 10

OnChannel = Callable[[Channel, Dict[str, object]], None]


class Mux:
    """Owns an endpoint and its channels; at most one link is attached at a time.

    on_channel(channel, header): the peer opened a channel; called in the loop,
    must not block; to refuse, close the channel with a detail.
    on_end(reason): the conversation is over for good: the peer said BYE, broke the
    protocol, or `end` was called. All channels have ended by then.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        on_channel: OnChannel,
        on_end: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.endpoint = endpoint
        self._on_channel = on_channel
        self._on_end = on_end
        self._channels: Dict[int, Channel] = {}
        self._draining: Set[Channel] = set()
        self._link: Optional[FdLink] = None
        self._lost: Optional[asyncio.Future[str]] = None
        self._ended: Optional[str] = None
        self._ack_timer: Optional[asyncio.TimerHandle] = None
        self._failures = 0
        #: Messages of this round, by `flush_soon`.
        self._soon = 0
        self.last_heard = 0.0

    # -- link -------------------------------------------------------------

    def hello(self, status: Status, client_id: bytes, server_id: bytes = NO_ID) -> Hello:
        """This side's hello for a new link. The old one is detached: it would make the number
        of what was received stale (PROTOCOL.md, "Resuming")."""
        self.detach("replaced by a new link")
        received, window = self.endpoint.received, self.endpoint.window_bytes
        return Hello(status, client_id, server_id, received, window)

    def attach(
        self, read_fd: int, write_fd: int, peer: Hello, rest: bytes = b""
    ) -> "asyncio.Future[str]":
        """Continue over a new link whose hellos are done; `rest` came with the peer's hello.

        Returns a future with the reason once this link is lost; cancelling it detaches. The
        caller owns the descriptors, and closes them only after that. A link attached before
        is detached. Raises ProtocolError if the peer's state does not fit this one.
        """
        self.detach("replaced by a new link")
        self.endpoint.link_up(peer.received, peer.window)
        if self.last_heard:  # not the first link
            give_back()
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(self._lost_cancelled)
        self._lost = lost
        self.last_heard = time.monotonic()
        self._link = FdLink(
            read_fd,
            write_fd,
            on_data=self._on_data,
            more=self._more,
            on_lost=self._on_lost,
        )
        self._link.start()
        if rest:
            self._on_data(rest)
        self.flush()
        return lost

    def detach(self, reason: str) -> None:
        """Detach the link; keep the channels."""
        if self._link is not None:
            self._link.stop(reason)

    @property
    def is_up(self) -> bool:
        """True while a link is attached."""
        return self._link is not None

    async def keepalive(self, interval_s: float, timeout_s: float) -> None:
        """Ping while a link is attached; detach a link that is silent for `timeout_s`.

        It is detached at that moment, not when the next ping is due. Runs until cancelled.
        """
        pause_s = min(interval_s, timeout_s)
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(interval_s, timeout_s)
            if self._link is None:
                continue
            left_s = self.last_heard + timeout_s - time.monotonic()
            if left_s <= 0:
                self.detach(f"nothing heard for {timeout_s:g} s")
                continue
            pause_s = min(interval_s, left_s)
            self.endpoint.ping()
            self.flush()

    def end(self, reason: str) -> None:
        """End the conversation: say BYE if a link is there, end all channels.

        The link stays attached to carry the last frames; the caller detaches it.
        """
        if self._ended is None:
            self.endpoint.bye(reason)
            self.flush()
            self._finish(reason)

    @property
    def ended(self) -> Optional[str]:
        """The reason why the conversation is over, or None."""
        return self._ended

    # -- channels ---------------------------------------------------------

    def open(self, header: Mapping[str, object]) -> Channel:
        """Open a channel; usable at once, also while no link is there.

        After the end of the conversation the channel is over from its start. Raises
        ChannelError if too many are open or `header` is too large.
        """
        if self._ended is not None:
            channel = Channel(self, 0)
            channel.ended({"error": self._ended}, cut=True)
            return channel
        channel_id = self.endpoint.open(header)
        channel = Channel(self, channel_id)
        self._channels[channel_id] = channel
        self.flush()
        return channel

    def flush(self) -> None:
        """Write what can be written now; an acknowledgement alone may wait a little."""
        if self._link is None or not self.endpoint.has_outgoing():
            return
        if not self.endpoint.ack_can_wait:
            self._link.flush()
        elif self._ack_timer is None:
            loop = asyncio.get_running_loop()
            self._ack_timer = loop.call_later(_ACK_DELAY_S, self._flush_ack)

    def flush_soon(self) -> None:
        """As `flush`, but of a round of the event loop only the first message goes out at once.

        The others go together: alone, each costs a packet and wakes every process on the way.
        """
        self._soon += 1
        if self._soon == 1:
            asyncio.get_running_loop().call_soon(self._end_round)
        elif self._soon <= _TOGETHER:
            return
        else:
            self._soon = 1
        self.flush()

    def _end_round(self) -> None:
        held, self._soon = self._soon > 1, 0
        if held:
            self.flush()

    def _flush_ack(self) -> None:
        self._ack_timer = None
        if self._link is not None and self.endpoint.has_outgoing():
            self._link.flush()

    def consumed(self, channel_id: int, count: int) -> None:
        """Note bytes that a channel's reader has used up."""
        self.endpoint.consume(channel_id, count)
        self.flush()

    def wake_when_drained(self, channel: Channel) -> None:
        """Call `channel.drained()` once its queue is low."""
        self._draining.add(channel)

    def forget(self, channel: Channel) -> None:
        """Drop a channel that the application has closed: no more events for it."""
        self._channels.pop(channel.id, None)
        self._draining.discard(channel)

    # -- inside -----------------------------------------------------------

    def _more(self) -> List[Buffer]:
        if not self.endpoint.has_outgoing():
            return []
        buffers = self.endpoint.outgoing(_PULL_BYTES)
        if self._draining:
            for channel in list(self._draining):
                if self.endpoint.buffered(channel.id) <= HIGH_WATER_BYTES // 2:
                    self._draining.discard(channel)
                    channel.drained()
        return buffers

    def _on_data(self, data: bytes) -> None:
        self.last_heard = time.monotonic()
        try:
            for event in self.endpoint.receive(data):
                self._dispatch(event)
        except ProtocolError as error:
            # The peer must get the BYE, on this link or the next: it would wait without end.
            self.endpoint.bye(f"protocol error: {error}")
            self.flush()
            self.detach(str(error))
            self._finish(f"protocol error: {error}")
            return
        self.flush()

    def _on_lost(self, reason: str) -> None:
        self._link = None
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self.endpoint.link_down()
        lost, self._lost = self._lost, None
        if lost is not None and not lost.done():
            lost.set_result(reason)

    def _lost_cancelled(self, lost: "asyncio.Future[str]") -> None:
        if lost.cancelled() and lost is self._lost:
            self.detach("given up")

    def _dispatch(self, event: ev.Event) -> None:
        if self._ended is not None:
            return
        if isinstance(event, ev.DataReceived):
            channel = self._channels.get(event.channel)
            if channel is not None:
                channel.received(event.data)
        elif isinstance(event, ev.ChannelOpened):
            self._opened(event)
        elif isinstance(event, ev.EofReceived):
            channel = self._channels.get(event.channel)
            if channel is not None:
                channel.received_eof()
        elif isinstance(event, ev.ChannelClosed):
            channel = self._channels.pop(event.channel, None)
            if channel is not None:
                self._draining.discard(channel)
                channel.ended(event.detail)
        elif isinstance(event, ev.ByeReceived):
            self._finish(event.reason)
            self.detach("the far end said bye")

    def _opened(self, event: ev.ChannelOpened) -> None:
        channel = Channel(self, event.channel)
        self._channels[event.channel] = channel
        try:
            self._on_channel(channel, event.header)
        except Exception as error:
            # The events after this one are counted as received: they must be dispatched.
            channel.abort({"error": f"{type(error).__name__}: {error}"})
            self._failures += 1
            if self._failures > _TOLD_FAILURES:
                return  # a peer that lies could fill the log
            asyncio.get_running_loop().call_exception_handler(
                {"message": "on_channel failed", "exception": error}
            )

    def _finish(self, reason: str) -> None:
        if self._ended is not None:
            return
        self._ended = reason
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.ended({"error": reason}, cut=True)
        self._on_end(reason)
