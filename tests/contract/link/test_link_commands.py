"""Commands and streams, for every link backend."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import socket

import pytest
from link_rig import leftovers

from tunnelkit.errors import ConnectionFailed, TimeoutExpired, UsageError
from tunnelkit.link.shared import session_slots

UGLY = ["", "it's", 'say "hi" $HOME `id`', "!!", "two\nlines\n", "\\ \\n", "*", "höhe", "-x", "~"]
HOSTS = pytest.mark.parametrize("node", [None, "node1"])


@HOSTS
async def test_words_arrive_exactly(connect, node) -> None:
    link = await connect()
    done = await link.run(["printf", "%s\\0", *UGLY], node=node)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout == b"".join(word.encode() + b"\0" for word in UGLY)


@HOSTS
async def test_exit_code_stderr_and_stdin(connect, node) -> None:
    link = await connect()
    done = await link.run(["sh", "-c", "cat; echo oops >&2; exit 7"], node=node, stdin=b"\0\xffhi")
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"\0\xffhi", b"oops\n")


async def test_a_commands_own_255_is_an_exit_code(connect) -> None:
    link = await connect()
    assert (await link.run(["sh", "-c", "exit 255"])).exit_code == 255
    done = await link.run(["sh", "-c", "echo Session open refused by peer >&2; exit 255"])
    assert done.exit_code == 255


async def test_a_missing_program_is_an_exit_code(connect) -> None:
    link = await connect()
    done = await link.run(["no-such-program-here"])
    assert done.exit_code == 127
    assert "no-such-program-here" in done.error_text


async def test_large_stdin_and_stdout(connect) -> None:
    link = await connect()
    data = random.Random(1).randbytes(3_000_000)
    done = await link.run(["cat"], stdin=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


async def test_timeout_ends_the_client(connect, cluster) -> None:
    link = await connect()
    with leftovers(cluster, "1000.125"):
        with pytest.raises(TimeoutExpired, match="login"):
            await link.run(["sleep", "1000.125"], timeout_s=0.5)
        assert not [pid for pid in cluster.processes_in("1000.125") if _is_ssh(pid)]
    assert (await link.run(["echo", "on"])).text == "on\n"


async def test_bad_words_and_nodes(connect) -> None:
    link = await connect()
    with pytest.raises(UsageError):
        await link.run([])
    with pytest.raises(UsageError):
        await link.run(["true"], node="-oProxyCommand=touch /tmp/x")


async def test_many_at_once_authenticate_once(connect, cluster) -> None:
    """30 commands against MaxSessions 10: they queue, and none connects anew."""
    link = await connect()
    runs = [link.run(["sh", "-c", f"sleep 0.1; echo {n}"]) for n in range(30)]
    done = await asyncio.gather(*runs)
    assert [result.text for result in done] == [f"{n}\n" for n in range(30)]
    assert cluster["login"].authentications() == 1


@pytest.mark.parametrize("sshd_options", [{"login": ["MaxSessions 2"]}])
async def test_a_refused_session_waits_its_turn(connect, cluster) -> None:
    link = await connect()
    done = await asyncio.gather(*(link.run(["sleep", "0.2"]) for _ in range(6)))
    assert {result.exit_code for result in done} == {0}
    stream = await link.open_stream(["cat"])
    other = await link.open_stream(["cat"])
    with pytest.raises(TimeoutExpired, match="true"):
        await link.run(["true"], timeout_s=1.0)
    await stream.close()
    assert (await link.run(["true"])).exit_code == 0
    await other.close()
    assert cluster["login"].authentications() == 1


async def test_each_host_authenticates_once(connect, cluster) -> None:
    link = await connect()
    hosts = [None, "node1", "node2"] * 3
    done = await asyncio.gather(*(link.run(["echo", "hi"], node=node) for node in hosts))
    assert [result.text for result in done] == ["hi\n"] * 9
    counts = {name: sshd.authentications() for name, sshd in cluster.sshds.items()}
    assert counts == {"bastion": 0, "login": 1, "node1": 1, "node2": 1}


async def _echo(stream, data: bytes) -> bytes:
    """Send all of `data`, end, and collect what comes back."""
    loop = asyncio.get_running_loop()
    with socket.socket(fileno=os.dup(stream.fileno())) as sock:
        sock.setblocking(False)

        async def send() -> None:
            # A command that is done already has hung up.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await loop.sock_sendall(sock, data)
                sock.shutdown(socket.SHUT_WR)

        sending = asyncio.create_task(send())
        received = bytearray()
        while chunk := await loop.sock_recv(sock, 1 << 16):
            received += chunk
        await sending
        return bytes(received)


@HOSTS
async def test_streams_echo(connect, node) -> None:
    link = await connect()
    data = random.Random(2).randbytes(10_000_000)
    stream = await link.open_stream(["cat"], node=node)
    assert hashlib.sha256(await _echo(stream, data)).digest() == hashlib.sha256(data).digest()
    assert await stream.wait() == 0
    await stream.close()


async def test_stream_status_and_diagnosis(connect) -> None:
    link = await connect()
    stream = await link.open_stream(["sh", "-c", "echo out; echo why >&2; exit 4"])
    assert await _echo(stream, b"") == b"out\n"
    assert await stream.wait() == 4
    assert stream.diagnosis() == "why"
    await stream.close()


async def test_a_stream_noisy_on_stderr_does_not_block(connect) -> None:
    link = await connect()
    noise = "i=0; while [ $i -lt 20000 ]; do echo noise-$i >&2; i=$((i+1)); done; echo end"
    stream = await link.open_stream(["sh", "-c", noise])
    assert await _echo(stream, b"") == b"end\n"
    await stream.wait()
    assert "noise-19999" in stream.diagnosis()
    assert len(stream.diagnosis()) < 10_000
    await stream.close()


async def test_closing_a_stream_frees_its_slot(connect) -> None:
    link = await connect()
    for _ in range(12):
        stream = await link.open_stream(["cat"])
        await stream.close()
    streams = [await link.open_stream(["cat"]) for _ in range(6)]
    assert (await link.run(["echo", "room"])).text == "room\n"
    for stream in streams:
        await stream.close()


async def test_a_stream_waits_for_a_slot_no_longer_than_it_may(connect, monkeypatch) -> None:
    """Our own limit counts as the host's does: all of its slots may be held for days."""
    link = await connect(max_sessions=3)
    held = await link.open_stream(["cat"])
    with monkeypatch.context() as hurried:
        hurried.setattr(session_slots, "STREAM_START_S", 0.3)
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionFailed, match="login allows no further") as refused:
                await link.open_stream(["cat"])
    assert refused.value.transient
    await held.close()
    assert await _echo(await link.open_stream(["cat"]), b"free again") == b"free again"


async def test_a_stream_ends_with_the_link(connect) -> None:
    link = await connect()
    stream = await link.open_stream(["cat"])
    closing = asyncio.create_task(link.close())
    assert await stream.wait() != 0
    await closing


async def test_commands_need_an_open_link(connect) -> None:
    link = await connect(opened=False)
    with pytest.raises(ConnectionFailed, match="not connected to login"):
        await link.run(["true"])


def _is_ssh(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip() == "ssh"
    except OSError:
        return False
