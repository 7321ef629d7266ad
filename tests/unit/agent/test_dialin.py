"""The dial-in port: only peers of our own uid get through."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from tunnelkit.agent.dialin import DialIn
from tunnelkit.mux.peers import same_user, socket_owner

_CONNECT = (
    "import os, socket, sys\n"
    "if len(sys.argv) > 2: os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))\n"
    "s = socket.socket(); s.connect(('127.0.0.1', int(sys.argv[1]))); s.settimeout(10)\n"
    "try: print(repr(s.recv(10)))\n"
    "except ConnectionResetError: print(repr(b''))\n"
)


async def dial(dialin: DialIn, *uid: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CONNECT, str(dialin.port), *uid, stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().strip()


async def test_our_own_processes_get_through() -> None:
    peers: list[socket.socket] = []

    def welcome(sock: socket.socket) -> None:
        peers.append(sock)
        sock.send(b"welcome")

    dialin = DialIn(welcome)
    dialin.open()
    try:
        assert await dial(dialin) == repr(b"welcome")
    finally:
        dialin.close()
        for peer in peers:
            peer.close()


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_another_user_is_hung_up_on() -> None:
    peers: list[socket.socket] = []
    dialin = DialIn(peers.append)
    dialin.open()
    try:
        assert await dial(dialin, "65534") == repr(b"")
    finally:
        dialin.close()
    assert peers == []
    assert dialin.refused == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/net/tcp")
def test_the_owner_of_a_connection_is_found() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        peer, address = server.accept()
        with peer:
            assert socket_owner(client.getsockname(), peer.getsockname()) == os.getuid()
            assert same_user(address, peer.getsockname())
    assert socket_owner(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
