from __future__ import annotations

import asyncio
import hashlib
import os
import random
import socket
from typing import Any

import pytest

from tests.unit.mux.rig import echo, ends, hello_of, read_all, soon, until
from tunnelkit.mux.channel import HIGH_WATER_BYTES, Channel
from tunnelkit.mux.mux import Mux
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.frames import HEADER, Kind
from tunnelkit.wire.handshake import Hello, Status

WINDOW = 256 * 1024


@pytest.mark.parametrize("window", [64 * 1024, 4 << 20])
async def test_echo_of_20_mb_through_many_cuts(window: int) -> None:
    data = random.Random(2).randbytes(20 << 20)
    async with ends(window) as pair:
        pair.server.serve = lambda channel, header: pair.spawn(echo(channel)) and None
        channel = pair.client.mux.open({"type": "echo"})

        async def write() -> None:
            for at in range(0, len(data), 50_000):
                await channel.write(data[at : at + 50_000])
            channel.write_eof()

        writer = pair.spawn(write())
        digest, count = hashlib.sha256(), 0
        next_cut = 500_000
        while piece := await soon(channel.read()):
            digest.update(piece)
            count += len(piece)
            if count >= next_cut:
                next_cut += 500_000
                if pair.links % 3 == 0:
                    await pair.cut_at_client()
                pair.link()
                if pair.links % 5 == 0:
                    pair.link()
        await soon(writer)
        assert pair.links > 40
        assert count == len(data)
        assert digest.digest() == hashlib.sha256(data).digest()
        assert await soon(channel.closed()) == {"echoed": True}
        await until(lambda: pair.client.mux.endpoint.unacked_bytes == 0)
        await until(lambda: pair.server.mux.endpoint.unacked_bytes == 0)
        assert pair.server.mux.endpoint.open_channels == 0


async def test_channels_opened_and_written_while_no_link_is_there() -> None:
    async with ends(linked=False) as pair:
        channel = pair.client.mux.open({"type": "early"})
        await channel.write(b"before ")
        pair.link()
        await channel.write(b"after")
        channel.write_eof()
        await until(lambda: len(pair.server.channels) == 1)
        assert pair.server.headers == [{"type": "early"}]
        assert await soon(read_all(pair.server.channels[0])) == b"before after"


async def flood(channel: Channel, written: list[int]) -> None:
    for _ in range(1000):
        await channel.write(b"x" * 10_000)
        written[0] += 10_000
    channel.write_eof()


async def test_write_waits_and_memory_is_bounded_when_nobody_reads() -> None:
    async with ends(WINDOW) as pair:
        channel = pair.client.mux.open({})
        written = [0]
        pair.spawn(flood(channel, written))
        client, server = pair.client.mux.endpoint, pair.server.mux.endpoint
        await until(lambda: written[0] >= WINDOW + HIGH_WATER_BYTES // 2 - 20_000)
        await until(lambda: client.unacked_bytes == 0 and not server.has_outgoing())
        # At rest: the window is full at the far end, the high-water mark here.
        assert written[0] <= WINDOW + HIGH_WATER_BYTES + 10_000
        assert client.buffered(channel.id) <= HIGH_WATER_BYTES + 10_000
        got = await soon(read_all(pair.server.channels[0]))
        assert len(got) == written[0] == 10_000_000


async def test_write_waits_while_no_link_is_there() -> None:
    async with ends(linked=False) as pair:
        channel = pair.client.mux.open({})
        written = [0]
        pair.spawn(flood(channel, written))
        await until(lambda: written[0] >= HIGH_WATER_BYTES - 10_000)
        assert written[0] <= HIGH_WATER_BYTES
        pair.link()
        await until(lambda: bool(pair.server.channels))
        assert len(await soon(read_all(pair.server.channels[0]))) == 10_000_000


async def test_a_waiting_write_ends_when_the_channel_does() -> None:
    async with ends(WINDOW) as pair:
        channel = pair.client.mux.open({})
        write = pair.spawn(channel.write(b"x" * (4 << 20)))
        await until(lambda: bool(pair.server.channels))
        pair.server.channels[0].close({"error": "enough"})
        await soon(write)
        assert await soon(channel.closed()) == {"error": "enough"}
        await channel.write(b"nowhere")
        assert await channel.read() == b""


async def test_a_stalled_channel_does_not_hold_up_another() -> None:
    async with ends(WINDOW) as pair:
        stalled = pair.client.mux.open({"type": "stalled"})
        pair.spawn(flood(stalled, [0]))
        await until(lambda: len(pair.server.channels) == 1)
        pair.server.serve = lambda channel, header: pair.spawn(echo(channel)) and None
        lively = pair.client.mux.open({"type": "echo"})
        for number in range(200):
            await lively.write(b"%d" % number)
            assert await soon(lively.read()) == b"%d" % number


async def test_tiny_pieces_nobody_reads_are_joined() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        for _ in range(5000):
            channel.write_nowait(b"x")
        await until(lambda: pair.client.mux.endpoint.unacked_bytes == 0)
        far = pair.server.channels[0]
        assert len(far._chunks) <= 5
        assert far.read_nowait() == b"x" * 5000


async def test_a_refused_channel_closes_with_the_reason() -> None:
    async with ends() as pair:
        pair.server.serve = lambda channel, header: channel.close({"error": "no such type"})
        channel = pair.client.mux.open({"type": "?"})
        await channel.write(b"x" * 100_000)
        assert await soon(channel.closed()) == {"error": "no such type"}


async def test_an_on_channel_that_fails_loses_no_other_event() -> None:
    async with ends() as pair:
        failures: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))

        def serve(channel: Channel, header: dict[str, Any]) -> None:
            if header["n"] == 1:
                raise ValueError("boom")
            pair.spawn(echo(channel))

        pair.server.serve = serve
        channels = [pair.client.mux.open({"n": n}) for n in range(3)]
        for channel in channels:
            channel.write_nowait(b"hi")
        assert await soon(channels[0].read()) == b"hi"
        assert await soon(channels[2].read()) == b"hi"
        assert await soon(channels[1].closed()) == {"error": "ValueError: boom"}
        assert [str(one["exception"]) for one in failures] == ["boom"]


async def test_what_arrived_before_the_end_can_still_be_read() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        await channel.write(b"last ")
        await channel.write(b"words")
        channel.close({"code": 0})
        await until(lambda: bool(pair.server.channels))
        far = pair.server.channels[0]
        assert await soon(far.closed()) == {"code": 0}
        assert not far.at_eof
        assert await soon(read_all(far)) == b"last words"
        assert far.at_eof


async def test_reading_what_arrived_before_our_own_close_breaks_nothing() -> None:
    async with ends(1000) as pair:
        channel = pair.client.mux.open({})
        await until(lambda: bool(pair.server.channels))
        await pair.server.channels[0].write(b"x" * 1000)
        await until(lambda: bool(channel._chunks))
        channel.close()
        assert await read_all(channel) == b"x" * 1000
        await until(lambda: pair.server.mux.endpoint.open_channels == 0)
        await until(lambda: pair.client.mux.endpoint.open_channels == 0)
        assert pair.client.ended == pair.server.ended == []


# -- links ----------------------------------------------------------------------------


async def test_keepalive_gives_up_a_silent_link_and_the_channels_stay() -> None:
    async with ends(linked=False) as pair:
        silent, ours = socket.socketpair()
        with silent, ours:
            channel = pair.client.mux.open({})
            hello = hello_of(pair.server.mux)
            lost = pair.client.mux.attach(ours.fileno(), ours.fileno(), hello)
            pair.spawn(pair.client.mux.keepalive(0.02, 0.1))
            assert await soon(lost) == "nothing heard for 0.1 s"
        assert not pair.client.mux.is_up and not channel.is_over
        await channel.write(b"still here")
        pair.link()
        await until(lambda: bool(pair.server.channels))
        assert await soon(pair.server.channels[0].read()) == b"still here"


async def test_silence_is_noticed_when_it_is_too_long_not_at_the_next_ping() -> None:
    async with ends(linked=False) as pair:
        silent, ours = socket.socketpair()
        with silent, ours:
            hello = hello_of(pair.server.mux)
            lost = pair.client.mux.attach(ours.fileno(), ours.fileno(), hello)
            pair.spawn(pair.client.mux.keepalive(3600.0, 0.1))
            assert await soon(lost) == "nothing heard for 0.1 s"


async def test_keepalive_keeps_a_link_that_answers() -> None:
    async with ends() as pair:
        mux = pair.client.mux
        pair.spawn(mux.keepalive(0.01, 5.0))
        for _ in range(5):
            heard = mux.last_heard
            await until(lambda heard=heard: mux.last_heard > heard)
        assert mux.is_up


async def test_lost_tells_why() -> None:
    async with ends(linked=False) as pair:
        ours, theirs = pair.link()
        assert pair.client.mux.is_up
        pair.sockets[1].shutdown(socket.SHUT_WR)
        assert await soon(ours) == "end of stream"
        new_ours, new_theirs = pair.link()
        assert theirs.result() == "cut"
        pair.client.mux.attach(
            pair.sockets[0].fileno(), pair.sockets[0].fileno(), hello_of(pair.server.mux)
        )
        assert await soon(new_ours) == "replaced by a new link"
        assert not new_theirs.done()


async def test_cancelling_lost_lets_go_of_the_descriptors() -> None:
    async with ends(linked=False) as pair:
        ours, _ = pair.link()
        ours.cancel()
        await until(lambda: not pair.client.mux.is_up)
        pair.link()
        assert pair.client.mux.is_up


async def test_pipes_with_a_descriptor_for_each_direction() -> None:
    async with ends(linked=False) as pair:
        to_server, from_client = os.pipe()
        to_client, from_server = os.pipe()
        client, server = pair.client.mux, pair.server.mux
        client_lost = client.attach(to_client, from_client, hello_of(server))
        server_lost = server.attach(to_server, from_server, hello_of(client))
        pair.server.serve = lambda channel, header: pair.spawn(echo(channel)) and None
        channel = client.open({})
        pair.spawn(channel.write(b"x" * 2_000_000))
        count = 0
        while count < 2_000_000:
            count += len(await soon(channel.read()))
        client.detach("done")
        os.close(from_client)
        assert await soon(server_lost) == "end of stream"
        assert await client_lost == "done"
        for fd in (to_server, to_client, from_server):
            os.close(fd)


# -- the end of it all --------------------------------------------------------------------


async def test_bye_ends_all_channels_on_both_sides() -> None:
    async with ends(linked=False) as pair:
        ours, theirs = pair.link()
        one, two = pair.client.mux.open({}), pair.client.mux.open({})
        await until(lambda: len(pair.server.channels) == 2)
        pair.server.mux.end("agent shuts down")
        assert await soon(ours) == "the far end said bye"
        assert not theirs.done(), "the owner of an end decides when to let go of its link"
        for channel in (one, two, *pair.server.channels):
            assert await soon(channel.closed()) == {"error": "agent shuts down"}
        assert pair.client.ended == pair.server.ended == ["agent shuts down"]
        assert pair.client.mux.ended == "agent shuts down"
        late = pair.client.mux.open({})
        assert late.is_over and await late.read() == b""


async def test_a_channel_closed_just_before_bye_was_not_cut() -> None:
    async with ends() as pair:
        closed, open_ = pair.client.mux.open({}), pair.client.mux.open({})
        await until(lambda: len(pair.server.channels) == 2)
        closed.close()
        pair.client.mux.end("down")
        await soon(pair.server.channels[1].closed())
        assert [channel.was_cut for channel in pair.server.channels] == [False, True]
        assert open_.was_cut and not closed.was_cut


async def test_a_client_that_was_away_hears_bye_on_its_next_link() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        pair.cut()
        pair.server.mux.end("out of time")
        pair.link()
        assert await soon(channel.closed()) == {"error": "out of time"}


async def test_bye_is_heard_even_if_writing_fails_first() -> None:
    """The peer said BYE and closed while we had much to write: that is no mere cut."""
    async with ends(linked=False) as pair:
        ours, _ = pair.link()
        channel = pair.client.mux.open({})
        # The server's end is written by hand, without a read in between.
        pair.server.mux.detach("by hand")
        pair.sockets[1].send(HEADER.pack(Kind.BYE, 0, 0, 5) + b"ended")
        pair.sockets[1].close()
        channel.write_nowait(b"x" * 1_000_000)
        assert await soon(channel.closed()) == {"error": "ended"}
        assert await soon(ours) == "the far end said bye"


async def test_garbage_ends_the_conversation_at_both_ends() -> None:
    async with ends(linked=False) as pair:
        pair.link()
        channel = pair.client.mux.open({})
        await until(lambda: bool(pair.server.channels))
        pair.client.mux.detach("by hand")
        pair.sockets[0].send(b"\x63" * 100)
        await until(lambda: bool(pair.server.ended))
        assert pair.server.ended == ["protocol error: bad frame: kind 99"]
        assert not pair.server.mux.is_up
        pair.link()
        assert await soon(channel.closed()) == {"error": pair.server.ended[0]}


async def test_a_peer_that_lost_its_state_is_refused() -> None:
    async with ends() as pair:
        pair.client.mux.open({})
        await until(lambda: bool(pair.server.channels))
        await until(lambda: pair.client.mux.endpoint.unacked_bytes == 0)
        window = pair.client.mux.endpoint.window_bytes
        forgetful = Hello(Status.RESUME, b"c" * 16, b"s" * 16, 0, window)
        fd = pair.sockets[0].fileno()
        with pytest.raises(ProtocolError, match="peer has 0"):
            pair.client.mux.attach(fd, fd, forgetful)
        assert not pair.client.mux.is_up


async def test_bytes_that_came_with_the_hello_are_not_lost() -> None:
    async with ends(linked=False) as pair:
        mux = pair.client.mux
        far = Endpoint(client=False, window_bytes=mux.endpoint.window_bytes)
        number = far.open({"type": "early"})
        far.send(number, b"data")
        far.link_up(0, mux.endpoint.window_bytes)
        rest = b"".join(bytes(one) for one in far.outgoing(1 << 20))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            hello = Hello(Status.FRESH, b"c" * 16, b"s" * 16, 0, far.window_bytes)
            mux.attach(ours.fileno(), ours.fileno(), hello, rest)
            assert pair.client.headers == [{"type": "early"}]
            assert await soon(pair.client.channels[0].read()) == b"data"
            mux.detach("done")


async def test_nothing_is_said_without_need() -> None:
    """A pair at rest writes nothing: no acknowledgement of acknowledgements."""
    async with ends() as pair:
        channel = pair.client.mux.open({})
        await channel.write(b"x")
        await until(lambda: bool(pair.server.channels))
        await soon(pair.server.channels[0].read())
        muxes: list[Mux] = [pair.client.mux, pair.server.mux]
        await until(lambda: all(mux.endpoint.unacked_bytes == 0 for mux in muxes))
        assert not any(mux.endpoint.has_outgoing() for mux in muxes)
