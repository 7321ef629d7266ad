"""A shell that waits for its command: what it runs, what it costs, and when it runs nothing."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.base import ByteStream, Link
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.scheduler.base import Command
from tunnelkit.session.connection.ready_shell import ReadyShell

#: What `sh` may be.
SHELLS = [
    shell
    for shell in (["dash"], ["bash", "--posix"], ["ksh"], ["busybox", "sh"])
    if shutil.which(shell[0])
]


class Stream:
    """A real process's stdin and stdout."""

    def __init__(self, sock: socket.socket, child: asyncio.subprocess.Process) -> None:
        self._sock, self.child = sock, child

    def fileno(self) -> int:
        return self._sock.fileno()

    async def wait(self) -> int:
        return await self.child.wait()

    def diagnosis(self) -> str:
        return ""

    async def close(self) -> None:
        self._sock.close()
        await self.child.wait()


class LocalLink:
    """A link whose far side is this machine."""

    name = "login"

    def __init__(self, sh: Sequence[str] = ("sh",)) -> None:
        self.sh = sh
        self.streams: list[Stream] = []

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ByteStream:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        child = await asyncio.create_subprocess_exec(
            *self.sh, *argv[1:], stdin=theirs.fileno(), stdout=theirs.fileno()
        )
        theirs.close()
        self.streams.append(Stream(ours, child))
        return cast(ByteStream, self.streams[-1])


@pytest.fixture(params=SHELLS, ids=" ".join)
async def link(request: pytest.FixtureRequest) -> AsyncIterator[LocalLink]:
    made = LocalLink(request.param)
    yield made
    for stream in made.streams:
        await stream.close()


def shell_on(link: LocalLink, most_s: float = 60.0) -> ReadyShell:
    return ReadyShell(cast(Link, link), most_s)


@pytest.mark.parametrize("measured", [True, False])
async def test_a_command_gets_its_words_and_its_stdin(link: LocalLink, measured: bool) -> None:
    shell = shell_on(link)
    if measured:
        assert (await shell.measure() or 0) > 0
    while not shell.is_open:
        await asyncio.sleep(0)
    assert shell.take() and not shell.take()
    stdin = b"one\n'two' $HOME \\ %s \xc3\xa9 \xff\nno newline at the end"
    script = 'cat; printf "|%s" "$@"; exit 3'
    argv = ("sh", "-c", script, "sh", "a\nb", "$(echo no)", "")
    done = await shell.run(Command(argv, stdin))
    assert done.exit_code == 3
    assert done.stdout == stdin + b"|a\nb|$(echo no)|"
    assert len(link.streams) == 1


async def test_a_stdin_may_hold_nul_and_what_printf_would_read(link: LocalLink) -> None:
    shell = shell_on(link)
    assert shell.take()
    stdin = b"a\0001\0\\0101\\c\\n%d\0\xff\0" + bytes(range(256))
    done = await shell.run(Command(("cat",), stdin))
    assert (done.exit_code, done.stdout) == (0, stdin)


async def test_the_command_gets_the_user_s_environment(
    link: LocalLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch takes it into the job."""
    for name in ("mark", "text", "line"):
        monkeypatch.setenv(name, "mine")
    shell = shell_on(link)
    assert shell.take()
    done = await shell.run(Command(("sh", "-c", 'echo "$mark $text $line"; env')))
    assert done.stdout.startswith(b"mine mine mine\n")
    assert b"_tk_" not in done.stdout


async def test_the_bytes_after_the_command_are_its_own(link: LocalLink) -> None:
    shell = shell_on(link)
    assert shell.take()
    stream = await shell.open_stream(["cat"])
    sent = b"\x00\xfftkwire" + bytes(range(256)) * 10
    await write_fd(stream.fileno(), sent)
    got = b""
    while not got.endswith(sent):
        data = await asyncio.wait_for(read_fd(stream.fileno()), 10)
        assert data
        got += data
    assert len(got) < len(sent) + 100  # the mark, twice at most, is all that comes before


async def test_half_a_command_is_not_run(link: LocalLink) -> None:
    shell = shell_on(link)
    await shell.measure()
    (stream,) = link.streams
    await write_fd(stream.fileno(), b"echo it ran\n")
    stream._sock.shutdown(socket.SHUT_WR)
    assert b"it ran" not in await read_fd(stream.fileno())
    assert await stream.wait() == 0
    await shell.end_unused()


async def test_a_shell_that_is_gone_is_a_loss_that_may_be_tried_again(link: LocalLink) -> None:
    shell = shell_on(link)
    await shell.measure()
    link.streams[0].child.kill()
    await link.streams[0].wait()
    assert shell.take()
    with pytest.raises(ConnectionFailed) as caught:
        await shell.run(Command(("echo", "x")))
    assert caught.value.transient


async def test_a_shell_that_nobody_takes_ends_by_itself(link: LocalLink) -> None:
    shell = shell_on(link, most_s=0.5)
    await shell.measure()
    assert await asyncio.wait_for(link.streams[0].child.wait(), 10) == 0
    assert not shell.take()
    await shell.end_unused()


async def test_one_that_is_not_open_yet_is_ended_with_its_opening() -> None:
    class Slow(LocalLink):
        async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ByteStream:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    shell = shell_on(Slow())
    await asyncio.sleep(0)
    assert not shell.is_open
    await asyncio.wait_for(shell.end_unused(), 10)
