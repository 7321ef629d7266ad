from __future__ import annotations

import json

import pytest

from tests.unit.wire.pair import Pair, Side, connected
from tunnelkit.wire import events as ev
from tunnelkit.wire.errors import ChannelError
from tunnelkit.wire.frames import (
    MAX_DATA_BYTES,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameDecoder,
    Kind,
)

WINDOW = 1000


def decode(data: bytes) -> list[Frame]:
    return FrameDecoder().feed(bytes(data))


def written(pair: Pair, side: Side) -> list[Frame]:
    """What `side` wants to say now, as frames; it stays in flight."""
    start = len(side.in_flight)
    pair.pump(side, 1 << 20)
    return decode(side.in_flight[start:])


# -- streams -------------------------------------------------------------------


def test_open_send_eof_close() -> None:
    pair = connected()
    channel = pair.client.open({"type": "x", "é": [1]})
    pair.client.endpoint.send(channel, b"hello")
    pair.client.endpoint.send_eof(channel)
    pair.settle()
    pair.server.endpoint.send(channel, b"world")
    pair.server.endpoint.close(channel, {"code": 0})
    pair.settle()
    assert pair.server.events == [
        ev.ChannelOpened(channel, {"type": "x", "é": [1]}),
        ev.DataReceived(channel, b"hello"),
        ev.EofReceived(channel),
        ev.ChannelClosed(channel, {}),
    ]
    assert pair.client.events == [
        ev.DataReceived(channel, b"world"),
        ev.ChannelClosed(channel, {"code": 0}),
    ]
    assert pair.client.endpoint.open_channels == pair.server.endpoint.open_channels == 0
    pair.assert_at_rest()


def test_channels_opened_and_used_before_the_first_link() -> None:
    pair = Pair()
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"early")
    pair.client.endpoint.close(channel, {"done": True})
    assert pair.client.endpoint.outgoing(1 << 20) == []
    pair.connect()
    pair.settle()
    assert pair.server.streams[channel].received == b"early"
    assert pair.server.streams[channel].closed == {"done": True}


def test_both_close_at_once_and_each_hears_the_others_word() -> None:
    pair = connected()
    channel = pair.client.open()
    pair.settle()
    pair.client.endpoint.close(channel, {"from": "client"})
    pair.server.endpoint.close(channel, {"from": "server"})
    pair.settle()
    assert pair.client.streams[channel].closed == {"from": "server"}
    assert pair.server.streams[channel].closed == {"from": "client"}
    assert pair.client.endpoint.open_channels == pair.server.endpoint.open_channels == 0


def test_a_buffer_the_caller_reuses_is_sent_as_it_was() -> None:
    pair = connected()
    channel = pair.client.open()
    buffer = bytearray(b"a" * 10_000)
    pair.client.endpoint.send(channel, buffer)
    buffer[:] = b"b" * 10_000
    pair.pump(pair.client)
    pair.connect()
    pair.settle()
    assert pair.server.streams[channel].received == b"a" * 10_000


def test_small_writes_that_pile_up_share_frames() -> None:
    pair = Pair()
    channel = pair.client.open()
    for _ in range(100_000):
        pair.client.endpoint.send(channel, b"x")
    pair.connect()
    kinds = [one.kind for one in written(pair, pair.client)]
    assert kinds.count(Kind.DATA) == 2
    pair.settle()
    assert pair.server.streams[channel].received == b"x" * 100_000


# -- windows --------------------------------------------------------------------


def test_a_stalled_reader_bounds_memory_on_both_sides() -> None:
    pair = connected(client_window=50_000, server_window=50_000)
    channel = pair.client.open()
    for _ in range(100):
        pair.client.endpoint.send(channel, b"x" * 10_000)
        pair.settle(consume=False)
    assert pair.server.streams[channel].unconsumed == 50_000
    assert pair.client.endpoint.unacked_bytes == 0
    assert pair.client.endpoint.buffered(channel) == 950_000, "what the caller is told to wait for"


def test_a_link_that_acknowledges_nothing_bounds_what_is_kept() -> None:
    pair = connected(server_window=50_000)
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"x" * 1_000_000)
    while pair.pump(pair.client):
        pass
    assert pair.client.endpoint.unacked_bytes < 50_000 + 200


def test_a_fast_channel_beside_a_stalled_one_keeps_flowing() -> None:
    pair = connected(WINDOW, WINDOW)
    stalled, fast = pair.client.open(), pair.client.open()
    pair.client.endpoint.send(stalled, b"s" * 100_000)
    for number in range(200):
        pair.client.endpoint.send(fast, b"%04d" % number * 100)
        pair.settle(consume=False)
        pair.server.consume(fast)
    pair.settle(consume=False)
    assert len(pair.server.streams[fast].received) == 200 * 400
    assert len(pair.server.streams[stalled].received) == WINDOW
    pair.settle()
    assert pair.server.streams[stalled].received == b"s" * 100_000


def test_round_robin_gives_each_channel_one_frame_a_turn() -> None:
    pair = connected(1 << 22, 1 << 22)
    channels = [pair.client.open() for _ in range(5)]
    pair.settle()
    for channel in channels:
        pair.client.endpoint.send(channel, bytes(20 * MAX_DATA_BYTES))
    for turn in range(10):
        buffers = pair.client.endpoint.outgoing(5 * MAX_DATA_BYTES)
        order = [one.channel for one in decode(b"".join(buffers)) if one.kind == Kind.DATA]
        assert order == channels, f"turn {turn}"


def test_a_small_message_waits_for_one_frame_of_each_bulk_channel_at_most() -> None:
    pair = connected(1 << 22, 1 << 22)
    bulk, small = pair.client.open(), pair.client.open()
    pair.client.endpoint.send(bulk, bytes(1 << 21))
    pair.pump(pair.client, 100_000)
    pair.client.endpoint.send(small, b"step over")
    frames = [one for one in written(pair, pair.client) if one.kind == Kind.DATA]
    assert [one.channel for one in frames[:2]] in ([bulk, small], [small, bulk])


@pytest.mark.parametrize("window", [1, 2, 3, 1000])
def test_no_window_size_stalls(window: int) -> None:
    pair = connected(window, window)
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"x" * 50 * window)
    pair.settle()
    assert len(pair.server.streams[channel].received) == 50 * window


def test_a_reader_of_single_bytes_does_not_stall_the_sender() -> None:
    pair = connected(WINDOW, WINDOW)
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"x" * 5000)
    for _ in range(5000):
        pair.settle(consume=False)
        assert pair.server.consume(channel, 1) == 1
    assert len(pair.server.streams[channel].received) == 5000


def test_consuming_more_than_was_received_is_refused() -> None:
    pair = connected()
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"abc")
    pair.settle(consume=False)
    with pytest.raises(ChannelError):
        pair.server.endpoint.consume(channel, 4)
    pair.server.endpoint.consume(channel, 3)


# -- closing ----------------------------------------------------------------------


def test_reading_on_after_our_own_close_says_nothing_more_on_the_channel() -> None:
    """Once the CLOSE is out the peer forgets the channel: a CREDIT would be an error."""
    pair = connected(WINDOW, WINDOW)
    channel = pair.client.open()
    pair.settle()
    pair.server.endpoint.send(channel, b"x" * WINDOW)
    pair.pump(pair.server)
    pair.deliver(pair.server)
    pair.client.endpoint.close(channel)
    assert [one.kind for one in written(pair, pair.client)][-1] == Kind.CLOSE
    pair.client.consume(channel)
    assert not [one for one in written(pair, pair.client) if one.kind == Kind.CREDIT]
    pair.settle()
    assert pair.server.endpoint.open_channels == 0


def test_a_close_with_data_queued_gets_through_to_a_peer_that_writes_before_it_reads() -> None:
    """An echo service blocked in writing to us reads our rest only if we let it write."""
    pair = connected(WINDOW, WINDOW)
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"q" * 10 * WINDOW)
    pair.settle(consume=False)
    stream = pair.server.streams[channel]

    def echo() -> None:
        for _ in range(100):
            pair.settle(consume=False)
            # It takes the next bytes only when what it wrote before is out.
            if not pair.server.endpoint.buffered(channel) and stream.unconsumed:
                count = pair.server.consume(channel, 700)
                pair.server.endpoint.send(channel, b"e" * count)

    echo()
    assert pair.client.streams[channel].unconsumed == WINDOW
    assert len(stream.received) < 10 * WINDOW, "stuck: each waits for the other to read"
    pair.client.endpoint.close(channel, {"bye": 1})
    echo()
    assert stream.received == b"q" * 10 * WINDOW
    assert stream.closed == {"bye": 1}
    pair.settle()
    assert pair.client.endpoint.open_channels == pair.server.endpoint.open_channels == 0


def test_a_close_with_data_queued_waits_for_the_window_and_an_abort_does_not() -> None:
    pair = connected(WINDOW, WINDOW)
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"q" * 2 * WINDOW)
    pair.client.endpoint.close(channel)
    pair.settle(consume=False)
    assert pair.server.streams[channel].closed is None
    pair.client.endpoint.abort(channel)
    pair.settle(consume=False)
    assert pair.server.streams[channel].closed == {}
    assert len(pair.server.streams[channel].received) == WINDOW
    pair.assert_at_rest()


def test_a_last_word_that_is_too_long_is_cut_not_sent_broken() -> None:
    pair = connected()
    for detail in (
        {"error": "x" * MAX_PAYLOAD_BYTES, "code": 1},
        {str(number): "x" * 900 for number in range(1000)},
    ):
        channel = pair.client.open()
        pair.client.endpoint.close(channel, detail)
        pair.settle()
        closed = pair.server.streams[channel].closed
        assert closed is not None and closed["truncated"] is True
        assert len(json.dumps(closed)) <= MAX_PAYLOAD_BYTES


def test_a_last_word_that_is_no_json_fails_at_the_caller_and_nothing_is_broken() -> None:
    pair = connected()
    channel = pair.client.open()
    with pytest.raises(TypeError):
        pair.client.endpoint.close(channel, {"error": object()})
    pair.client.endpoint.close(channel, {"error": "text"})
    pair.settle()
    assert pair.server.streams[channel].closed == {"error": "text"}


def test_send_after_end_is_an_error_and_after_the_peers_close_it_goes_nowhere() -> None:
    pair = connected()
    one, two, three = pair.client.open(), pair.client.open(), pair.client.open()
    pair.client.endpoint.send_eof(one)
    pair.client.endpoint.close(two)
    for channel in (one, two):
        with pytest.raises(ChannelError):
            pair.client.endpoint.send(channel, b"late")
    pair.settle()
    pair.server.endpoint.close(three)
    pair.settle()
    pair.client.endpoint.send(three, b"late")
    pair.client.endpoint.send_eof(three)
    pair.client.endpoint.close(three)
    pair.assert_at_rest()
