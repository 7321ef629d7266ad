"""Cuts, hellos and endings of the conversation, and what breaks the protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.wire.pair import connected, frame
from tunnelkit.wire import endpoint as endpoint_module
from tunnelkit.wire import events as ev
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ChannelError, ProtocolError
from tunnelkit.wire.frames import (
    CREDIT,
    HEADER,
    MAX_PAYLOAD_BYTES,
    Kind,
)

WINDOW = 1000


def test_two_cuts_in_a_row_with_nothing_exchanged() -> None:
    pair = connected()
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"x" * 200_000)
    for _ in range(3):
        pair.pump(pair.client, 100_000)
        pair.cut()
        pair.connect()
        pair.cut()
        pair.connect()
    pair.settle()
    assert pair.server.streams[channel].received == b"x" * 200_000
    pair.assert_at_rest()


def test_a_cut_in_the_middle_of_a_resend() -> None:
    pair = connected(1 << 22, 1 << 22)
    channel = pair.client.open()
    data = b"".join(b"%06d" % number for number in range(100_000))
    pair.client.endpoint.send(channel, data)
    pair.pump(pair.client, 1 << 20)
    for part in (1, 17, 100_000, 200_001, 70_000):
        pair.connect(server_noticed=False)
        pair.pump(pair.client, 250_000)
        pair.deliver(pair.client, part)
    pair.connect()
    pair.settle()
    assert pair.server.streams[channel].received == data


def test_a_hello_processed_twice_changes_nothing() -> None:
    pair = connected()
    channel = pair.client.open()
    pair.client.endpoint.send(channel, b"abc")
    pair.connect()
    pair.connect(server_noticed=False)
    pair.settle()
    assert pair.server.streams[channel].received == b"abc"
    assert len(pair.server.events) == 2


def test_a_server_that_lost_its_state_is_no_peer_to_resume_with() -> None:
    pair = connected()
    pair.client.open()
    pair.settle()
    pair.cut()
    with pytest.raises(ProtocolError, match="peer has 0, we can go on only from 1 to 1"):
        pair.client.endpoint.link_up(0, 1 << 20)
    with pytest.raises(ProtocolError, match="peer has 2"):
        pair.client.endpoint.link_up(2, 1 << 20)
    pair.connect()


@pytest.mark.parametrize("window", [0, 5])
def test_a_window_that_is_none_or_changes_is_refused(window: int) -> None:
    pair = connected()
    with pytest.raises(ProtocolError, match="window"):
        pair.client.endpoint.link_up(0, window)


def test_bye_is_said_again_on_the_next_link() -> None:
    pair = connected()
    pair.client.endpoint.bye("enough" + "é" * 1000)
    pair.pump(pair.client)
    pair.connect()
    pair.settle()
    (event,) = pair.server.events
    assert isinstance(event, ev.ByeReceived) and event.reason.startswith("enoughé")


def test_pings_are_echoed_and_a_flood_of_them_is_not_kept() -> None:
    pair = connected()
    pair.client.endpoint.ping(b"here?")
    pair.settle()
    assert pair.client.events == [ev.PongReceived(b"here?")]
    for number in range(10_000):
        pair.server.endpoint.ping(b"flood")
        pair.client.take(frame(Kind.PING, payload=b"%d" % number))
    assert pair.pump(pair.client) < 1000
    assert pair.pump(pair.server) < 1000


# -- limits -------------------------------------------------------------------------


def test_ids_are_never_used_again() -> None:
    pair = connected()
    seen = set()
    for _ in range(100):
        channel = pair.client.open()
        assert channel not in seen and channel % 2 == 1
        seen.add(channel)
        pair.client.endpoint.close(channel)
        pair.settle()
    with pytest.raises(ProtocolError, match="opened channel 1"):
        pair.server.take(frame(Kind.OPEN, 1, pair.server.endpoint.received + 1, b"{}"))


def test_each_side_may_have_its_number_of_channels_whatever_the_other_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_module, "MAX_CHANNELS", 10)
    pair = connected()
    for side in pair.sides:
        for _ in range(10):
            side.open()
        with pytest.raises(ChannelError, match="too many"):
            side.endpoint.open({})
    pair.settle()
    # A slot is free for the opener only once it is free at the peer too.
    for closer in pair.sides:
        for channel in (1, 2):
            closer.endpoint.close(channel)
    pair.settle()
    for side in pair.sides:
        side.open()
    pair.settle()


def test_a_header_that_is_too_large_or_no_json_is_refused() -> None:
    endpoint = Endpoint(client=True)
    with pytest.raises(ChannelError, match="too large"):
        endpoint.open({"x": "y" * MAX_PAYLOAD_BYTES})
    with pytest.raises(TypeError):
        endpoint.open({"x": object()})
    assert endpoint.open_channels == 0


# -- what a peer may not do -----------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda c, s: frame(Kind.OPEN, c, s, b"{}"), id="open again"),
        pytest.param(lambda c, s: frame(Kind.OPEN, 2, s, b"{}"), id="open with our parity"),
        pytest.param(lambda c, s: frame(Kind.OPEN, 0, s, b"{}"), id="open 0"),
        pytest.param(lambda c, s: frame(Kind.OPEN, c + 2, s, b"{]"), id="bad json"),
        pytest.param(lambda c, s: frame(Kind.OPEN, c + 2, s, b"\xff\xff"), id="bad utf-8"),
        pytest.param(lambda c, s: frame(Kind.OPEN, c + 2, s, b"[]"), id="no object"),
        pytest.param(lambda c, s: frame(Kind.OPEN, c + 2, s, b"[" * 200_000), id="deep json"),
        pytest.param(lambda c, s: frame(Kind.DATA, c + 2, s, b"x"), id="unknown channel"),
        pytest.param(lambda c, s: frame(Kind.DATA, c, s + 1, b"x"), id="a gap"),
        pytest.param(lambda c, s: frame(Kind.DATA, c, s, b"x" * (WINDOW + 1)), id="window"),
        pytest.param(lambda c, s: frame(Kind.DATA, c, s), id="empty data"),
        pytest.param(
            lambda c, s: frame(Kind.EOF, c, s) + frame(Kind.EOF, c, s + 1), id="second eof"
        ),
        pytest.param(
            lambda c, s: frame(Kind.EOF, c, s) + frame(Kind.DATA, c, s + 1, b"x"), id="after eof"
        ),
        pytest.param(
            lambda c, s: frame(Kind.CLOSE, c, s, b"{}") + frame(Kind.DATA, c, s + 1, b"x"),
            id="after close",
        ),
        pytest.param(lambda c, s: frame(Kind.CLOSE, c, s, b"null"), id="close without object"),
        pytest.param(lambda c, s: frame(Kind.CREDIT, c, s, CREDIT.pack(1)), id="credit not owed"),
        pytest.param(lambda c, s: frame(Kind.CREDIT, c, s, CREDIT.pack(0)), id="credit of 0"),
        pytest.param(lambda c, s: frame(Kind.CREDIT, c, s, b"xx"), id="short credit"),
        pytest.param(lambda c, s: frame(Kind.ACK, 0, 99), id="ack of what was not sent"),
        pytest.param(lambda c, s: frame(Kind.PING, 0, 0, b"x" * 65), id="long ping"),
        pytest.param(lambda c, s: frame(Kind.BYE, 0, 0, b"x" * 1025), id="long bye"),
        pytest.param(lambda c, s: frame(0, c, s), id="no such kind"),
        pytest.param(lambda c, s: HEADER.pack(Kind.DATA, c, s, 2**32 - 1), id="huge"),
    ],
)
def test_what_breaks_the_protocol(make: Callable[[int, int], bytes]) -> None:
    pair = connected(WINDOW, WINDOW)
    channel = pair.client.open()
    pair.settle()
    with pytest.raises(ProtocolError):
        pair.server.take(make(channel, pair.server.endpoint.received + 1))
