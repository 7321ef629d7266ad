"""Any use of channels, any split, any cut at any point, any number of resumes.

Streams arrive whole, once, in order; every channel ends on both sides; nothing
is kept once all is said.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.unit.wire.pair import Pair, Side

_RANDOM = random.Random(1).randbytes(1 << 20)

WINDOWS = st.sampled_from([1, 2, 17, 1000, 70_000, 300_000])
SIZES = st.one_of(
    st.integers(1, 40), st.integers(1, 3000), st.sampled_from([65_536, 65_537, 200_000])
)
COUNTS = st.one_of(st.integers(1, 20), st.integers(1, 5000), st.just(1 << 30))
INDEX = st.integers(0, 1 << 20)


class Sent:
    """What one side did to one direction of a channel."""

    def __init__(self, channel: int) -> None:
        self.data = bytearray()
        self.offset = channel * 7919
        self.eof = False
        self.closed = False
        self.aborted = False

    @property
    def ended(self) -> bool:
        return self.eof or self.closed

    def next(self, size: int) -> bytes:
        start = (self.offset + len(self.data)) % (len(_RANDOM) // 2)
        data = _RANDOM[start : start + size]
        self.data += data
        return data


class WirePair(RuleBasedStateMachine):
    @initialize(client_window=WINDOWS, server_window=WINDOWS)
    def begin(self, client_window: int, server_window: int) -> None:
        self.pair = Pair(client_window, server_window)
        self.up = False
        self.sent: dict[tuple[int, int], Sent] = {}
        for which in (0, 0, 1):
            self.open(which, True, 50)

    # -- what applications do ----------------------------------------------

    def side(self, which: int) -> Side:
        return self.pair.sides[which % 2]

    def pick(self, which: int, index: int) -> tuple[Side, int, Sent] | None:
        side = self.side(which)
        if not side.streams:
            return None
        channel = sorted(side.streams)[index % len(side.streams)]
        sent = self.sent.setdefault((which % 2, channel), Sent(channel))
        return side, channel, sent

    @rule(which=INDEX, data=st.booleans(), size=SIZES)
    def open(self, which: int, data: bool, size: int) -> None:
        side = self.side(which)
        if len(side.streams) < 12:
            channel = side.open({"number": len(side.streams)})
            if data:
                sent = self.sent.setdefault((which % 2, channel), Sent(channel))
                side.endpoint.send(channel, sent.next(self.limit(which, 0, size)))

    def limit(self, which: int, so_far: int, size: int) -> int:
        """Enough to fill a window many times over, not so much that a window of 1 takes ages."""
        window = self.side(which + 1).endpoint.window_bytes
        return max(0, min(size, 400_000 - so_far, 200 * window - so_far))

    @rule(which=INDEX, index=INDEX, size=SIZES)
    def send(self, which: int, index: int, size: int) -> None:
        picked = self.pick(which, index)
        if picked and not picked[2].ended:
            side, channel, sent = picked
            side.endpoint.send(channel, sent.next(self.limit(which, len(sent.data), size)))

    @rule(which=INDEX, index=INDEX)
    def eof(self, which: int, index: int) -> None:
        picked = self.pick(which, index)
        if picked:
            side, channel, sent = picked
            side.endpoint.send_eof(channel)
            sent.eof = True

    @rule(which=INDEX, index=INDEX)
    def close(self, which: int, index: int) -> None:
        picked = self.pick(which, index)
        if picked:
            side, channel, sent = picked
            side.endpoint.close(channel, {"from": which % 2})
            sent.closed = True

    @rule(which=INDEX, index=INDEX)
    def abort(self, which: int, index: int) -> None:
        picked = self.pick(which, index)
        if picked:
            side, channel, sent = picked
            side.endpoint.abort(channel)
            sent.closed = sent.aborted = True

    @rule(which=INDEX, index=INDEX, count=COUNTS)
    def consume(self, which: int, index: int, count: int) -> None:
        picked = self.pick(which, index)
        if picked:
            picked[0].consume(picked[1], count)

    # -- what the link does --------------------------------------------------

    @rule(which=INDEX, limit=COUNTS)
    def pump(self, which: int, limit: int) -> None:
        self.pair.pump(self.side(which), min(limit, 1 << 20))

    @rule(which=INDEX, count=COUNTS)
    def deliver(self, which: int, count: int) -> None:
        self.pair.deliver(self.side(which), count)

    @rule(limit=COUNTS, count=COUNTS, turns=st.integers(1, 4))
    def exchange(self, limit: int, count: int, turns: int) -> None:
        """Both ways at once, leaving some bytes in flight: what a cut then loses."""
        for which in [0, 1] * turns:
            self.pump(which, limit)
            self.deliver(which, count)

    @rule(which=INDEX, index=INDEX, size=SIZES, count=COUNTS)
    def talk(self, which: int, index: int, size: int, count: int) -> None:
        """Send, exchange, read: the common life of a channel."""
        self.send(which, index, size)
        self.exchange(1 << 18, count, 2)
        self.consume(which + 1, index, count)

    @rule(limit=COUNTS, turns=st.integers(1, 4))
    def cut_while_resending(self, limit: int, turns: int) -> None:
        for _ in range(turns):
            self.connect(True)
            self.pump(0, limit)
            self.pump(1, limit)
            self.deliver(0, limit // 2 + 1)

    @rule(which=INDEX)
    def ping(self, which: int) -> None:
        self.side(which).endpoint.ping(b"x")

    @precondition(lambda self: self.up)
    @rule()
    def cut(self) -> None:
        self.pair.cut()
        self.up = False

    @rule(server_noticed=st.booleans())
    def connect(self, server_noticed: bool) -> None:
        self.pair.connect(server_noticed=server_noticed)
        self.up = True

    # -- what must hold --------------------------------------------------------

    @invariant()
    def nothing_doubled_or_reordered(self) -> None:
        for which, side in enumerate(self.pair.sides):
            for channel, stream in side.streams.items():
                sent = self.sent.get((1 - which, channel))
                assert stream.received == (sent.data[: len(stream.received)] if sent else b"")

    @invariant()
    def what_is_kept_is_bounded_by_the_windows(self) -> None:
        for side in self.pair.sides:
            window = self.pair.peer(side).endpoint.window_bytes
            # Per channel at most a window of data, at worst each byte its own frame, and
            # some frames without data.
            assert side.endpoint.unacked_bytes <= len(side.streams) * (18 * window + 500)

    def teardown(self) -> None:
        pair = self.pair
        if not self.up:
            pair.connect()
        pair.settle()
        self.nothing_doubled_or_reordered()
        for which, side in enumerate(pair.sides):
            for channel, stream in side.streams.items():
                theirs = self.sent.get((1 - which, channel), Sent(channel))
                mine = self.sent.get((which, channel), Sent(channel))
                if not theirs.aborted and not mine.closed:
                    assert stream.received == theirs.data, "a stream is not whole"
                    assert theirs.closed or stream.eofs == theirs.eof
                assert (stream.closed is not None) == (theirs.closed or mine.closed)
        pair.assert_at_rest()
        for side in pair.sides:
            for channel in side.streams:
                side.endpoint.close(channel)
        pair.settle()
        for side in pair.sides:
            assert all(stream.closed is not None for stream in side.streams.values())
            assert side.endpoint.open_channels == 0
        pair.assert_at_rest()


TestWirePair = WirePair.TestCase
TestWirePair.settings = settings(max_examples=150, stateful_step_count=80, deadline=None)
