"""Two endpoints and a fake link between them that splits, delays, loses and cuts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tunnelkit.wire import events as ev
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.frames import HEADER, Kind

EVERYTHING = 1 << 40


def frame(kind: Kind | int, channel: int = 0, seq: int = 0, payload: bytes = b"") -> bytes:
    """A frame as a peer would put it on the link, right or wrong."""
    return HEADER.pack(kind, channel, seq, len(payload)) + payload


@dataclass
class Stream:
    """What one side has seen of one channel."""

    header: dict[str, Any] | None = None
    received: bytearray = field(default_factory=bytearray)
    unconsumed: int = 0
    eofs: int = 0
    closed: dict[str, Any] | None = None


class Side:
    """An endpoint with an application that notes everything and checks the order of events."""

    def __init__(self, *, client: bool, window_bytes: int) -> None:
        self.endpoint = Endpoint(client=client, window_bytes=window_bytes)
        self.streams: dict[int, Stream] = {}
        self.events: list[ev.Event] = []
        self.in_flight = bytearray()
        """Bytes we put on the link that the peer has not read yet."""

    def open(self, header: dict[str, Any] | None = None) -> int:
        channel = self.endpoint.open(header or {})
        assert channel not in self.streams, "an id came twice"
        self.streams[channel] = Stream(header)
        return channel

    def take(self, data: bytes) -> None:
        for event in self.endpoint.receive(data):
            self.events.append(event)
            if isinstance(event, ev.ChannelOpened):
                assert event.channel not in self.streams, "opened twice"
                self.streams[event.channel] = Stream(event.header)
            elif isinstance(event, ev.DataReceived):
                stream = self.streams[event.channel]
                assert event.data
                assert stream.closed is None and not stream.eofs, "data after the end"
                stream.received += event.data
                stream.unconsumed += len(event.data)
                assert stream.unconsumed <= self.endpoint.window_bytes
            elif isinstance(event, ev.EofReceived):
                stream = self.streams[event.channel]
                assert stream.closed is None and not stream.eofs, "EOF twice or late"
                stream.eofs += 1
            elif isinstance(event, ev.ChannelClosed):
                stream = self.streams[event.channel]
                assert stream.closed is None, "closed twice"
                stream.closed = event.detail

    def consume(self, channel: int, count: int = EVERYTHING) -> int:
        stream = self.streams[channel]
        count = min(count, stream.unconsumed)
        stream.unconsumed -= count
        self.endpoint.consume(channel, count)
        return count


class Pair:
    """A client, a server and the link of the moment."""

    def __init__(self, client_window: int = 1 << 20, server_window: int = 1 << 20) -> None:
        self.client = Side(client=True, window_bytes=client_window)
        self.server = Side(client=False, window_bytes=server_window)
        self.sides = (self.client, self.server)

    def peer(self, side: Side) -> Side:
        return self.server if side is self.client else self.client

    def connect(self, *, server_noticed: bool = True) -> None:
        """A new link: client's hello, then server's. Without `server_noticed` the server
        learns that the old link died from the new hello only."""
        client, server = self.client.endpoint, self.server.endpoint
        client.link_down()
        if server_noticed:
            server.link_down()
        self.lose()
        client_received = client.received
        server.link_up(client_received, client.window_bytes)
        client.link_up(server.received, server.window_bytes)

    def cut(self) -> None:
        """The link dies; what is in flight is lost."""
        self.lose()
        for side in self.sides:
            side.endpoint.link_down()

    def lose(self) -> None:
        for side in self.sides:
            side.in_flight.clear()

    def pump(self, side: Side, limit_bytes: int = 1 << 16) -> int:
        """Let one side write to the link; returns how many bytes it wrote."""
        before = len(side.in_flight)
        for buffer in side.endpoint.outgoing(limit_bytes):
            side.in_flight += buffer
        return len(side.in_flight) - before

    def deliver(self, side: Side, count: int = EVERYTHING) -> int:
        """Let the peer of `side` read at most `count` bytes of what is in flight."""
        data = bytes(side.in_flight[:count])
        del side.in_flight[: len(data)]
        if data:
            self.peer(side).take(data)
        return len(data)

    def settle(self, *, consume: bool = True) -> None:
        """Exchange everything until nothing moves any more."""
        moved = 1
        while moved:
            moved = 0
            for side in self.sides:
                moved += self.pump(side)
                moved += self.deliver(side)
                if consume:
                    moved += sum(side.consume(channel) for channel in list(side.streams))

    def assert_at_rest(self) -> None:
        """Nothing kept, nothing to say."""
        for side in self.sides:
            assert side.endpoint.unacked_bytes == 0
            assert not side.endpoint.has_outgoing()
            assert side.endpoint.outgoing(1 << 20) == []


def connected(client_window: int = 1 << 20, server_window: int = 1 << 20) -> Pair:
    pair = Pair(client_window, server_window)
    pair.connect()
    return pair
