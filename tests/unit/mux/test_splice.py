from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.mux.rig import Ends, ends, soon, until
from tests.unit.wire.test_frames import pieces
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.loop_records import LoopRecord, RecordReader, event_payload
from tunnelkit.mux.splice import splice


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


@asynccontextmanager
async def spliced() -> AsyncIterator[tuple[Ends, socket.socket, socket.socket]]:
    """An application and a service, joined by two splices and a channel between them."""
    app, near = tcp_pair()
    far, service = tcp_pair()
    with app, near, far, service:
        async with ends(256 * 1024) as pair:
            pair.server.serve = lambda channel, header: pair.spawn(splice(far, channel)) and None
            pair.spawn(splice(near, pair.client.mux.open({"type": "tcp"}), quickack=True))
            yield pair, app, service


async def receive_all(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    parts = []
    while data := await loop.sock_recv(sock, 1 << 16):
        parts.append(data)
    return b"".join(parts)


async def test_bulk_both_ways_with_half_closes_and_cuts() -> None:
    up, down = random.Random(3).randbytes(3 << 20), random.Random(4).randbytes(2 << 20)
    async with spliced() as (pair, app, service):
        loop = asyncio.get_running_loop()

        async def send(sock: socket.socket, data: bytes) -> None:
            await loop.sock_sendall(sock, data)
            sock.shutdown(socket.SHUT_WR)

        senders = [pair.spawn(send(app, up)), pair.spawn(send(service, down))]
        got_up, got_down = pair.spawn(receive_all(service)), pair.spawn(receive_all(app))
        while not (got_up.done() and got_down.done()):
            pair.link()
            await asyncio.sleep(0.01)
        assert await soon(got_up) == up
        assert await soon(got_down) == down
        await soon(asyncio.gather(*senders))
        await until(lambda: pair.client.mux.endpoint.open_channels == 0)


async def test_an_answer_after_the_askers_half_close() -> None:
    async with spliced() as (_, app, service):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(app, b"question")
        app.shutdown(socket.SHUT_WR)
        assert await soon(receive_all(service)) == b"question"
        await loop.sock_sendall(service, b"answer")
        service.close()
        assert await soon(receive_all(app)) == b"answer"


async def test_a_reset_is_a_reset_at_the_other_end() -> None:
    async with spliced() as (_, app, service):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(service, b"half of")
        assert await soon(loop.sock_recv(app, 100)) == b"half of"
        service.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        service.close()
        with pytest.raises(ConnectionResetError):
            await soon(receive_all(app))


async def test_the_end_of_the_conversation_is_a_reset() -> None:
    async with spliced() as (pair, app, _service):
        await until(lambda: bool(pair.server.channels))
        pair.server.mux.end("agent ends")
        with pytest.raises(ConnectionResetError):
            await soon(receive_all(app))


async def test_descriptors_that_are_not_ready() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    data = random.Random(5).randbytes(1 << 20)
    try:
        writer = asyncio.ensure_future(write_fd(writing, data))
        got = bytearray()
        while len(got) < len(data):
            got += await soon(read_fd(reading, 10_000))
        await soon(writer)
        assert got == data
    finally:
        os.close(writing)
    assert await soon(read_fd(reading)) == b""
    os.close(reading)


RECORDS = st.builds(
    LoopRecord,
    st.integers(0, 2),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=300),
    part=st.just(0),
)


@given(st.lists(RECORDS, max_size=8), st.lists(st.integers(0, 5000), max_size=20))
def test_records_split_anywhere(sent: list[LoopRecord], cuts: list[int]) -> None:
    reader = RecordReader()
    data = b"".join(record.encode() for record in sent)
    assert [one for piece in pieces(data, cuts) for one in reader.feed(piece)] == sent


def test_an_event() -> None:
    record = LoopRecord(0, 7, event_payload("armed", generation=2))
    assert record.event() == {"event": "armed", "generation": 2}
