"""The agent dials the login host: who is let in, and what is carried."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tkrig import eventually
from tunnelkit.agent.links.reverse_connect import keep_dialling, proof
from tunnelkit.session.agent.tls_certificate import Certificate, make_certificate

MEET = (
    "import sys; from tunnelkit.agent.links.reverse_connect import meet; "
    "sys.exit(meet(*sys.argv[1:]))"
)

CERTIFICATE = make_certificate()


def client_tls() -> ssl.SSLContext:
    """Of who takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def server_tls(tmp_path: Path, certificate: Certificate) -> ssl.SSLContext:
    path = tmp_path / f"{secrets.token_hex(4)}.pem"
    path.write_text(certificate.certificate + certificate.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


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
    assert process.stdin and process.stdout and process.stderr
    told = {"certificate": CERTIFICATE.certificate, "key": CERTIFICATE.key}
    process.stdin.write(json.dumps(told).encode() + b"\n")
    yield process
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
    async with asyncio.timeout(30):
        sock = await came.get()
    with sock:
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
    dialling.cancel()
    assert await asyncio.to_thread(meeting.wait, 30) == 0


async def test_only_who_knows_the_secret_is_let_in(
    meeting: subprocess.Popen[bytes], invitation: Path
) -> None:
    told = await invited(invitation)
    assert invitation.stat().st_mode & 0o777 == 0o600
    where = (str(told["host"]), int(str(told["port"])))
    secret = bytes.fromhex(str(told["secret"]))

    def knock(key: bytes, who: bytes) -> bytes:
        plain = socket.create_connection(where, timeout=30)
        with client_tls().wrap_socket(plain) as sock:
            assert sock.getpeercert(True) == ssl.PEM_cert_to_DER_cert(CERTIFICATE.certificate)
            nonce = sock.recv(32)
            own = os.urandom(32)
            sock.sendall(own + proof(key, who, nonce, own))
            try:
                answer = sock.recv(32)
            except OSError:
                answer = b""
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
        told = {
            "host": "127.0.0.1",
            "port": listener.getsockname()[1],
            "certificate": CERTIFICATE.certificate,
            "secret": "00" * 32,
        }
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


@pytest.mark.parametrize("stranger_has", ["another certificate", "no TLS", "another secret"])
async def test_a_stranger_at_the_port_is_not_served(
    invitation: Path, tmp_path: Path, stranger_has: str
) -> None:
    """A man in the middle without the key gets nothing; who has the key alone gets no more than
    a proof of ours."""
    key = make_certificate() if stranger_has == "another certificate" else CERTIFICATE
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = {
            "host": "127.0.0.1",
            "port": listener.getsockname()[1],
            "certificate": CERTIFICATE.certificate,
            "secret": "00" * 32,
        }
        invitation.write_text(json.dumps(told))
        invitation.chmod(0o600)

        async def serve(sock: socket.socket) -> None:
            raise AssertionError("served")

        def stranger() -> bytes:
            peer, _ = listener.accept()
            peer.settimeout(30)
            with contextlib.ExitStack() as stack:
                stack.enter_context(peer)
                if stranger_has == "no TLS":
                    peer.sendall(b"x" * 32)
                    hello = peer.recv(4096)
                    assert bytes(32) not in hello
                    return peer.recv(1)
                try:
                    tls = stack.enter_context(
                        server_tls(tmp_path, key).wrap_socket(peer, server_side=True)
                    )
                    tls.sendall(b"x" * 32)
                    got = tls.recv(64)
                    if stranger_has == "another secret":
                        assert len(got) == 64
                        tls.sendall(b"y" * 32)
                        got = tls.recv(1)
                    return got
                except OSError:
                    return b""

        dialling = asyncio.create_task(keep_dialling(str(invitation), lambda: False, serve))
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(stranger) == b""
        assert not dialling.done()
        dialling.cancel()


async def test_strangers_hold_nobody_up(meeting: subprocess.Popen[bytes], invitation: Path) -> None:
    """Three who say nothing, one who speaks slowly in TLS, and the agent: it comes through while
    they are there, and each of them is hung up on."""
    told = await invited(invitation)
    where = (str(told["host"]), int(str(told["port"])))
    silent = [socket.create_connection(where, timeout=30) for _ in range(3)]
    plain = socket.create_connection(where, timeout=30)
    slow = await asyncio.to_thread(client_tls().wrap_socket, plain)
    stop = asyncio.Event()

    async def drip() -> float:
        """How long it may speak, a byte every 0.1 s."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        with contextlib.suppress(OSError):
            while loop.time() < start + 20:
                await asyncio.to_thread(slow.sendall, b"x")
                await asyncio.sleep(0.1)
        return loop.time() - start

    dripping = asyncio.create_task(drip())
    assert await dripping < 5, "the whole of the proof has one second"

    async def serve(sock: socket.socket) -> None:
        came.set_result(sock)
        await stop.wait()

    came: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
    again = [socket.create_connection(where, timeout=30) for _ in range(3)]
    dialling = asyncio.create_task(keep_dialling(str(invitation), lambda: False, serve))
    async with asyncio.timeout(15):
        sock = await came
    sock.close()
    dialling.cancel()
    for one in (*silent, *again, slow):
        one.close()


async def test_a_recorder_on_the_path_sees_no_plain_text(
    meeting: subprocess.Popen[bytes], invitation: Path
) -> None:
    told = await invited(invitation)
    recorded = bytearray()
    where = (str(told["host"]), int(str(told["port"])))

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*where)

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    recorded.extend(data)
                    sink.write(data)
            sink.close()

        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    recorder = await asyncio.start_server(record, "127.0.0.1", 0)
    told["port"] = recorder.sockets[0].getsockname()[1]
    invitation.write_text(json.dumps(told))
    came: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

    async def serve(sock: socket.socket) -> None:
        came.set_result(sock)
        await asyncio.Event().wait()

    dialling = asyncio.create_task(keep_dialling(str(invitation), lambda: False, serve))
    async with asyncio.timeout(30):
        sock = await came
        with sock:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, b"PLAIN" * 1000)
            assert await read(meeting, 5000) == b"PLAIN" * 1000
            assert meeting.stdin is not None
            meeting.stdin.write(b"WORDS" * 1000)
            got = b""
            while len(got) < 5000:
                got += await loop.sock_recv(sock, 5000)
    dialling.cancel()
    recorder.close()
    assert len(recorded) > 10_000
    secret = bytes.fromhex(str(told["secret"]))
    assert not any(word in recorded for word in (b"PLAIN", b"WORDS", secret))


async def test_nothing_is_served_without_a_certificate(invitation: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MEET, str(invitation), "localhost"),
        stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await process.communicate(b"no json\n")
    assert process.returncode == 1 and b"no TLS" in err
    assert not invitation.exists()
