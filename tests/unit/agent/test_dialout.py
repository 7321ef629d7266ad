"""The agent dials the login host: who is let in, and what is carried."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tkrig import eventually
from tunnelkit.agent.dialout import keep_dialling, proof

MEET = "import sys; from tunnelkit.agent.dialout import meet; sys.exit(meet(*sys.argv[1:]))"


@pytest.fixture
def invitation(tmp_path: Path) -> Path:
    return tmp_path / "x.meet"


@pytest.fixture
def meeting(invitation: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`meet` as it runs on the login host, for a node that is this host."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEET, str(invitation), "localhost"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    yield process
    assert process.stdin and process.stdout and process.stderr
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


async def invited(invitation: Path) -> dict[str, object]:
    await eventually(lambda: invitation.exists() and invitation.read_text(), "the invitation")
    told: dict[str, object] = json.loads(invitation.read_text())
    return told


async def read(process: subprocess.Popen[bytes], count: int) -> bytes:
    assert process.stdout is not None
    fd, got = process.stdout.fileno(), b""
    async with asyncio.timeout(30):
        while len(got) < count:
            data = await asyncio.to_thread(os.read, fd, count - len(got))
            if not data:
                break
            got += data
    return got


async def test_the_agent_finds_its_way_and_bytes_go_through(
    meeting: subprocess.Popen[bytes], invitation: Path
) -> None:
    came: asyncio.Queue[socket.socket] = asyncio.Queue()
    linked = False

    async def serve(sock: socket.socket) -> None:
        nonlocal linked
        linked = True
        came.put_nowait(sock)

    dialling = asyncio.create_task(keep_dialling(str(invitation), lambda: linked, serve))
    try:
        async with asyncio.timeout(30):
            sock = await came.get()
    finally:
        dialling.cancel()
    with sock:
        assert sock.getpeername()[0] == "127.0.0.1"
        loop = asyncio.get_running_loop()
        blob = os.urandom(300_000)
        sending = asyncio.create_task(loop.sock_sendall(sock, blob))
        assert await read(meeting, len(blob)) == blob
        await sending
        assert meeting.stdin is not None
        meeting.stdin.write(b"down")
        assert await loop.sock_recv(sock, 100) == b"down"
        assert invitation.read_text() == "", "it is used once"
        # The session's stream ends: so does the connection.
        meeting.stdin.close()
        assert await loop.sock_recv(sock, 100) == b""
    assert await asyncio.to_thread(meeting.wait, 30) == 0


async def test_only_who_knows_the_secret_is_let_in(
    meeting: subprocess.Popen[bytes], invitation: Path
) -> None:
    told = await invited(invitation)
    assert invitation.stat().st_mode & 0o777 == 0o600
    where = (str(told["host"]), int(str(told["port"])))
    secret = bytes.fromhex(str(told["secret"]))

    def knock(key: bytes, who: bytes) -> bytes:
        with socket.create_connection(where, timeout=30) as sock:
            nonce = sock.recv(32, socket.MSG_WAITALL)
            own = os.urandom(32)
            sock.sendall(own + proof(key, who, nonce, own))
            answer = sock.recv(32, socket.MSG_WAITALL)
            return answer if answer == proof(key, b"login", nonce, own) else b""

    assert await asyncio.to_thread(knock, os.urandom(32), b"agent") == b""
    # What the login host itself says can't be played back to it.
    assert await asyncio.to_thread(knock, secret, b"login") == b""
    assert await asyncio.to_thread(knock, secret, b"agent") != b""


async def test_strangers_hold_up_nobody(meeting: subprocess.Popen[bytes], invitation: Path) -> None:
    """Some say nothing, some a byte now and then, one half of a proof: the agent is let in at once,
    and none of them stays for longer than a second."""
    told = await invited(invitation)
    where = (str(told["host"]), int(str(told["port"])))
    silent = [socket.create_connection(where, timeout=30) for _ in range(300)]
    loop = asyncio.get_running_loop()
    came: asyncio.Queue[socket.socket] = asyncio.Queue()

    async def drip(sock: socket.socket) -> float:
        began = loop.time()
        sock.setblocking(False)
        while True:
            with contextlib.suppress(BlockingIOError):
                if sock.recv(100, socket.MSG_PEEK) == b"":
                    return loop.time() - began
                sock.recv(100)
            try:
                sock.send(b"x")
            except OSError:
                return loop.time() - began
            await asyncio.sleep(0.1)

    async def serve(sock: socket.socket) -> None:
        came.put_nowait(sock)
        await asyncio.Event().wait()

    dripping = asyncio.create_task(drip(socket.create_connection(where, timeout=30)))
    async with asyncio.timeout(20):
        stayed_s = await dripping
    assert stayed_s < 5, "its limit is for all that it says"
    dialling = asyncio.create_task(keep_dialling(str(invitation), lambda: False, serve))
    try:
        async with asyncio.timeout(20):
            (await came.get()).close()
    finally:
        dialling.cancel()
        for sock in silent:
            sock.close()


async def test_nobody_waits_for_it_any_more(
    meeting: subprocess.Popen[bytes], invitation: Path
) -> None:
    await invited(invitation)
    assert meeting.stdin is not None
    meeting.stdin.close()
    assert await asyncio.to_thread(meeting.wait, 30) == 1
    assert invitation.read_text() == ""


@pytest.mark.parametrize("fault", ["open to others", "a link", "no secret", "not json"])
async def test_an_invitation_that_others_could_have_written_is_left(
    tmp_path: Path, invitation: Path, fault: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = {"host": "127.0.0.1", "port": listener.getsockname()[1], "secret": "00" * 32}
        if fault == "no secret":
            del told["secret"]
        target = tmp_path / "y.meet" if fault == "a link" else invitation
        target.write_text("{" if fault == "not json" else json.dumps(told))
        target.chmod(0o644 if fault == "open to others" else 0o600)
        if fault == "a link":
            invitation.symlink_to(target)
        looks = 0

        def has_link() -> bool:
            nonlocal looks
            looks += 1
            return False

        async def serve(sock: socket.socket) -> None:
            raise AssertionError("dialled")

        dialling = asyncio.create_task(keep_dialling(str(invitation), has_link, serve))
        await eventually(lambda: looks >= 2, "a second look")
        dialling.cancel()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_stranger_at_the_port_is_not_served(invitation: Path) -> None:
    """Who can't prove that they have read the invitation gets nothing but a proof of ours."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = {"host": "127.0.0.1", "port": listener.getsockname()[1], "secret": "00" * 32}
        invitation.write_text(json.dumps(told))
        invitation.chmod(0o600)

        async def serve(sock: socket.socket) -> None:
            raise AssertionError("served")

        def stranger() -> bytes:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"x" * 32)
                peer.recv(64, socket.MSG_WAITALL)
                peer.sendall(b"y" * 32)
                return peer.recv(1)

        dialling = asyncio.create_task(keep_dialling(str(invitation), lambda: False, serve))
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(stranger) == b""
        assert not dialling.done()
        dialling.cancel()
