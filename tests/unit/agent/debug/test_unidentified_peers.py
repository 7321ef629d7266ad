"""Who is no process that the loop knows is a debuggee only if it stays."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator

import pytest

from tunnelkit.agent.debug import unidentified_peers
from tunnelkit.agent.debug.rank_support import DialedProcess
from tunnelkit.agent.debug.unidentified_peers import UnidentifiedPeers, has_hung_up
from tunnelkit.agent.processes.peer_process import PeerProcess

WHO = DialedProcess(PeerProcess(), "node1")
Pair = tuple[socket.socket, socket.socket]


def _tcp() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    near.setblocking(False)
    return near, far


def _unix() -> Pair:
    near, far = socket.socketpair()
    near.setblocking(False)
    return near, far


@pytest.fixture(params=[_tcp, _unix])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if request.param is _tcp and sys.platform != "linux":
        pytest.skip("only Linux tells a TCP socket's state so")
    near, far = request.param()
    yield near, far
    near.close()
    far.close()


def test_who_has_hung_up_is_told(pair: Pair) -> None:
    near, far = pair
    assert not has_hung_up(near)
    far.send(b"Content-Length: 2\r\n\r\n{}")
    assert not has_hung_up(near)
    assert near.recv(100), "nothing was taken"
    far.close()
    assert has_hung_up(near)
    near.close()
    assert has_hung_up(near)


def test_rubbish_that_was_left_is_no_sign_of_life() -> None:
    near, far = _tcp()
    far.send(b"GET / HTTP/1.0\r\n\r\n")
    far.close()
    assert has_hung_up(near)
    near.close()


async def test_only_who_stays_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unidentified_peers, "_PATIENCE_S", 0.05)
    admitted: asyncio.Queue[socket.socket] = asyncio.Queue()
    held = UnidentifiedPeers(lambda sock, who: admitted.put_nowait(sock))
    probe, gone = _tcp()
    guest, stays = _tcp()
    held.hold(probe, WHO)
    held.hold(guest, WHO)
    gone.close()
    async with asyncio.timeout(10):
        assert await admitted.get() is guest
    assert probe.fileno() == -1, "closed, and never admitted"
    assert admitted.empty() and guest.fileno() >= 0
    # What is held at the end is hung up on.
    last, other = _tcp()
    held.hold(last, WHO)
    held.close()
    held.close()
    other.settimeout(5)
    assert other.recv(1) == b""
    for sock in (guest, stays, other):
        sock.close()
