"""The thread that carries an ssh forward's bytes: all of them, in order, with their ends."""

from __future__ import annotations

import errno
import hashlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.support.descriptors import no_descriptors, refused_accepts
from tunnelkit.link.shared import byte_carrier
from tunnelkit.link.shared.byte_carrier import ByteCarrier, CarriedPort

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def carrier() -> Iterator[ByteCarrier]:
    carrier = ByteCarrier()
    yield carrier
    carrier.close()
    assert not [one for one in threading.enumerate() if one.name == "forwards"]


@pytest.fixture
def joined(carrier: ByteCarrier) -> Iterator[Pair]:
    """The two outer ends of a connection that is carried."""
    ends = join(carrier)
    yield ends
    for end in ends:
        end.close()


def join(carrier: ByteCarrier) -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        one, _ = server.accept()
    other, far = socket.socketpair()
    for sock in (one, other):
        sock.setblocking(False)
    for sock in (near, far):
        sock.settimeout(30.0)
    carrier.carry(one, other)
    return near, far


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_a_message_and_its_answer(joined: Pair) -> None:
    near, far = joined
    near.sendall(b"hello")
    assert far.recv(64) == b"hello"
    far.sendall(b"and back")
    assert near.recv(64) == b"and back"


def test_many_at_once_under_pressure_lose_nothing(carrier: ByteCarrier) -> None:
    """Every socket is full before its reader begins, both ways."""
    pairs = [join(carrier) for _ in range(8)]
    data = [hashlib.sha256(bytes([number])).digest() * 100_000 for number in range(16)]
    found: dict[int, bytes] = {}

    def send(sock: socket.socket, content: bytes) -> None:
        sock.sendall(content)
        sock.shutdown(socket.SHUT_WR)

    def receive(number: int, sock: socket.socket) -> None:
        found[number] = read_all(sock)

    ends = [end for pair in pairs for end in pair]
    senders = [threading.Thread(target=send, args=one) for one in zip(ends, data, strict=True)]
    for thread in senders:
        thread.start()
    swapped = [end for pair in pairs for end in reversed(pair)]
    receivers = [threading.Thread(target=receive, args=one) for one in enumerate(swapped)]
    for thread in receivers:
        thread.start()
    for thread in senders + receivers:
        thread.join(30.0)
    assert [found.get(number) for number in range(16)] == data
    for end in ends:
        end.close()


def test_one_way_goes_on_when_the_other_has_ended(joined: Pair) -> None:
    near, far = joined
    near.sendall(b"question")
    near.shutdown(socket.SHUT_WR)
    assert read_all(far) == b"question"
    far.sendall(b"answer")
    far.shutdown(socket.SHUT_WR)
    assert read_all(near) == b"answer"


def test_who_reads_no_more_stops_the_writer(joined: Pair) -> None:
    near, far = joined
    far.close()
    with pytest.raises(OSError):
        while True:
            near.sendall(bytes(1 << 16))


def test_a_reset_is_one_on_the_other_side(joined: Pair) -> None:
    outer, inner = joined
    # A unix socket knows no reset; one that is closed with bytes unread makes one.
    outer.sendall(b"unread")
    assert inner.recv(1, socket.MSG_PEEK) == b"u"
    inner.close()
    with pytest.raises(ConnectionError):
        while outer.recv(64):
            pass
        outer.sendall(b"x")
        outer.recv(64)
        raise AssertionError("an orderly end")


def test_a_reset_of_the_near_side_ends_the_far_one(joined: Pair) -> None:
    near, far = joined
    near.sendall(b"x")
    assert far.recv(1) == b"x"
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    assert far.recv(1) == b""


def test_the_end_closes_what_is_open_and_what_was_new(carrier: ByteCarrier) -> None:
    pairs = [join(carrier) for _ in range(5)]
    carrier.close()
    for near, far in pairs:
        assert near.recv(1) == b"" and far.recv(1) == b""
        near.close()
        far.close()
    carrier.close()


def test_a_port_serves_whom_it_admits_and_stops_at_once(carrier: ByteCarrier) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    address = listener.getsockname()
    far: list[socket.socket] = []
    admitted: list[bool] = [False, True]

    def reach() -> socket.socket:
        near, other = socket.socketpair()
        near.setblocking(False)
        far.append(other)
        return near

    port = CarriedPort(listener, lambda peer: admitted.pop(0), reach)
    carrier.serve(port)
    with socket.create_connection(address, timeout=30) as refused:
        assert refused.recv(1) == b"" and not far
    with socket.create_connection(address, timeout=30) as served:
        served.sendall(b"hello")
        served.shutdown(socket.SHUT_WR)
        # The answer comes after the port is gone.
        while not far:
            threading.Event().wait(0.01)
        carrier.stop(port)
        carrier.stop(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with far[0]:
            assert read_all(far[0]) == b"hello"
            far[0].sendall(b"answer")
        assert read_all(served) == b"answer"


def test_a_server_whose_backlog_is_full_is_asked_again(carrier: ByteCarrier) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    near, far = socket.socketpair()
    near.setblocking(False)
    answers: list[socket.socket | None] = [None, None, near]

    def reach() -> socket.socket:
        answer = answers.pop(0)
        if answer is None:
            raise BlockingIOError
        return answer

    carrier.serve(CarriedPort(listener, lambda peer: True, reach))
    with socket.create_connection(listener.getsockname(), timeout=30) as sock, far:
        far.sendall(b"hello")
        assert sock.recv(64) == b"hello"
    assert not answers


def test_without_descriptors_a_client_waits_and_no_core_is_spent(
    carrier: ByteCarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_carrier, "EXHAUSTED_S", 0.5)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    near, far = socket.socketpair()
    near.setblocking(False)
    refused = threading.Event()
    failed = refused_accepts(monkeypatch, refused.set)
    port = CarriedPort(listener, lambda peer: True, lambda: near)
    other = CarriedPort(far, lambda peer: True, lambda: near)
    client = socket.socket()
    client.settimeout(30)
    # The thread's own descriptors are there before the last one is taken.
    carrier.serve(port)
    carrier.stop(other)
    with no_descriptors():
        client.connect(listener.getsockname())
        assert refused.wait(30)
        for _ in range(20):
            carrier.stop(other)  # a turn of the thread
    assert failed == [errno.EMFILE]
    with client, far:
        far.sendall(b"late")
        assert client.recv(64) == b"late"


def test_a_port_without_descriptors_can_be_stopped(
    carrier: ByteCarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    refused = threading.Event()
    refused_accepts(monkeypatch, refused.set)
    port = CarriedPort(listener, lambda peer: True, socket.socket)
    carrier.serve(port)
    with socket.socket() as client:
        with no_descriptors():
            client.connect(listener.getsockname())
            assert refused.wait(30)
        carrier.stop(port)
    assert listener.fileno() == -1
