"""The listening socket: who gets through, how the connection is set, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.descriptors import no_descriptors, refused_accepts
from tests.support.ports import free_port
from tunnelkit.mux import listener as listener_module
from tunnelkit.mux.listener import Listener

_AS_ANOTHER = (
    "import os, socket, sys\n"
    "os.setgid(65534); os.setuid(65534)\n"
    "s = socket.socket(); s.connect(('127.0.0.1', int(sys.argv[1]))); s.settimeout(10)\n"
    "try: print(repr(s.recv(10)))\n"
    "except ConnectionResetError: print(repr(b''))\n"
)


class Peers:
    """Collects connections as they come; all are closed at the end."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.came = asyncio.Event()

    def __call__(self, sock: socket.socket) -> None:
        self.sockets.append(sock)
        self.came.set()

    async def first(self) -> socket.socket:
        async with asyncio.timeout(10):
            await self.came.wait()
        return self.sockets[0]


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    made = Peers()
    yield made
    for sock in made.sockets:
        sock.close()


@pytest.fixture
async def listener(peers: Peers) -> AsyncIterator[Listener]:
    made = Listener(peers)
    yield made
    made.close()


async def hung_up(client: socket.socket) -> bool:
    """True once the other end has closed the connection."""
    client.setblocking(False)
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.get_running_loop().sock_recv(client, 10) == b""
    return True


async def test_a_peer_of_ours_gets_through_ready_for_small_writes(
    listener: Listener, peers: Peers
) -> None:
    listener.open()
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        peer = await peers.first()
        assert not peer.getblocking()
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        peer.send(b"hello")
        assert client.recv(10) == b"hello"
    assert listener.refused == 0


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_a_peer_of_another_uid_is_hung_up_on_and_counted(
    listener: Listener, peers: Peers
) -> None:
    listener.open()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _AS_ANOTHER, str(listener.port), stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == repr(b"")
    assert peers.sockets == []
    assert listener.refused == 1


async def test_who_is_not_known_to_be_us_is_refused(
    listener: Listener, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the test before, for an ordinary user, who has no second uid to come from."""
    monkeypatch.setattr("tunnelkit.mux.listener.same_user", lambda peer, own: False)
    listener.open()
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        assert await hung_up(client)
    assert peers.sockets == []
    assert listener.refused == 1


async def test_a_taken_port_is_the_callers_to_explain(listener: Listener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError) as caught:
            listener.open(port)
        assert caught.value.errno == errno.EADDRINUSE
    listener.open(port)
    assert listener.port == port


async def test_a_port_is_had_again_at_once(listener: Listener, peers: Peers) -> None:
    port = free_port()
    listener.open(port)
    with socket.create_connection(("127.0.0.1", port)):
        (await peers.first()).close()  # first: this side keeps the TIME_WAIT
        listener.close()
    listener.open(port)
    assert listener.port == port


async def test_close_leaves_connections_and_may_come_twice(
    listener: Listener, peers: Peers
) -> None:
    listener.close()
    listener.open()
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        peer = await peers.first()
        listener.close()
        listener.close()
        peer.send(b"still here")
        assert client.recv(10) == b"still here"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.port)).close()


async def test_whom_nobody_wants_is_hung_up_on() -> None:
    def on_peer(sock: socket.socket) -> None:
        raise RuntimeError("not now")

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    listener = Listener(on_peer)
    listener.open()
    try:
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            assert await hung_up(client)
    finally:
        listener.close()
    assert "not now" in str(errors)


async def test_a_unix_socket_is_ours_alone(
    listener: Listener, peers: Peers, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    before = os.umask(0o022)
    try:
        listener.open_unix(str(path))
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        peer = await peers.first()
        assert not peer.getblocking()
        peer.send(b"hello")
        assert client.recv(10) == b"hello"
    with pytest.raises(OSError) as caught:
        Listener(peers).open_unix(str(path))
    assert caught.value.errno == errno.EADDRINUSE


async def test_a_peer_that_is_gone_before_it_is_accepted_is_nobody(
    peers: Peers, listener: Listener
) -> None:
    """The kernel lists a socket that its process has closed as root's."""
    listener.open()
    # The event loop accepts nothing meanwhile.
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", listener.port)) as sock:
            sock.sendall(b"evil")
    own = socket.create_connection(("127.0.0.1", listener.port))
    try:
        first = await peers.first()
        assert first.getpeername() == own.getsockname()
        assert listener.refused == 20
    finally:
        own.close()


async def test_without_descriptors_a_peer_waits_and_no_core_is_spent(
    listener: Listener, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "EXHAUSTED_S", 0.5)
    listener.open()
    refused = asyncio.Event()
    failed = refused_accepts(monkeypatch, refused.set)
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        with no_descriptors():
            async with asyncio.timeout(10):
                await refused.wait()
            for _ in range(50):
                await asyncio.sleep(0)
        assert failed == [errno.EMFILE]
        (await peers.first()).send(b"late")
        assert client.recv(10) == b"late"
