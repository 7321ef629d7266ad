"""What every link does, over ssh or into a pod: commands, byte streams, ends and losses."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import select
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from every_link import EVERY, EVERY_HOST, PODS, SSH, Far, opened, over_ssh, to_a_pod
from link_rig import echo, wait_for

from tests.support.kube_rig import running_stand_in
from tunnelkit.errors import ConnectionFailed, TimeoutExpired, UsageError
from tunnelkit.lab.kube.stand_in import StandIn
from tunnelkit.mux.fd_io import read_fd, write_fd

UGLY = ["", "it's", 'say "hi" $HOME `id`', "!!", "two\nlines\n", "\\ \\n", "*", "höhe", "-x", "~"]


@pytest.fixture(scope="module")
def pods() -> Iterator[StandIn]:
    with running_stand_in() as cluster:
        cluster.make_pod("pod-0")
        yield cluster


def named(one: tuple[str, str | None]) -> str:
    return "-".join(filter(None, one))


HOSTS = pytest.mark.parametrize("far", EVERY_HOST, ids=named, indirect=True)
INTO_PODS = pytest.mark.parametrize("far", PODS, ids=named, indirect=True)


@pytest.fixture(params=EVERY, ids=named)
async def far(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[Far]:
    kind, node = request.param
    if kind in SSH:
        with over_ssh(kind, node, home) as one:
            async for ready in opened(one):
                yield ready
    else:
        with to_a_pod(kind, node, home, request.getfixturevalue("pods")) as one:
            async for ready in opened(one):
                yield ready


@HOSTS
async def test_words_arrive_exactly(far: Far) -> None:
    done = await far.run(["printf", "%s\\0", *UGLY])
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout == b"".join(word.encode() + b"\0" for word in UGLY)


@HOSTS
async def test_exit_code_stderr_and_stdin(far: Far) -> None:
    done = await far.run(["sh", "-c", "cat; echo oops >&2; exit 7"], stdin=b"\0\xffhi")
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"\0\xffhi", b"oops\n")
    done = await far.run(["sh", "-c", "printf half >&2; exit 255"])
    assert (done.exit_code, done.stderr.strip()) == (255, b"half")


async def test_a_missing_program_is_an_exit_code(far: Far) -> None:
    done = await far.run(["no-such-program-here"])
    assert done.exit_code == 127
    assert "no-such-program-here" in done.error_text


async def test_large_stdin_and_stdout(far: Far) -> None:
    data = random.Random(1).randbytes(3_000_000)
    done = await far.run(["cat"], stdin=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


async def test_a_command_that_takes_too_long(far: Far) -> None:
    with pytest.raises(TimeoutExpired, match=r"sleep.* took more than 0.5 s"):
        await far.run(["sleep", "30"], timeout_s=0.5)
    assert (await far.run(["echo", "on"])).text == "on\n"


async def test_no_words_and_bad_nodes(far: Far) -> None:
    with pytest.raises(UsageError):
        await far.run([])
    with pytest.raises(UsageError):
        await far.link.run(["true"], node="-oProxyCommand=touch /tmp/x")


@INTO_PODS
async def test_many_commands_at_once(far: Far) -> None:
    runs = [far.run(["sh", "-c", f"sleep 0.1; echo {n}"]) for n in range(12)]
    assert [done.text for done in await asyncio.gather(*runs)] == [f"{n}\n" for n in range(12)]


@HOSTS
async def test_streams_echo(far: Far) -> None:
    data = random.Random(2).randbytes(10_000_000)
    stream = await far.open_stream(["cat"])
    assert hashlib.sha256(await echo(stream, data)).digest() == hashlib.sha256(data).digest()
    assert await stream.wait() == 0
    await stream.close()


async def test_stream_status_and_diagnosis(far: Far) -> None:
    stream = await far.open_stream(["sh", "-c", "echo out; echo why >&2; exit 4"])
    assert await echo(stream, b"") == b"out\n"
    assert await stream.wait() == 4
    assert stream.diagnosis() == "why"
    await stream.close()


async def test_a_stream_noisy_on_stderr_does_not_block(far: Far) -> None:
    noise = "i=0; while [ $i -lt 20000 ]; do echo noise-$i >&2; i=$((i+1)); done; echo end"
    stream = await far.open_stream(["sh", "-c", noise])
    assert await echo(stream, b"") == b"end\n"
    await stream.wait()
    assert "noise-19999" in stream.diagnosis()
    assert len(stream.diagnosis()) < 10_000
    await stream.close()


async def test_a_closed_stream_ends_the_far_stdin(far: Far, home: Path) -> None:
    """The process reads the end, and has time to do something about it."""
    mark = home / "ended"
    stream = await far.open_stream(["sh", "-c", f"echo go; cat; echo > {mark}"])
    assert await asyncio.to_thread(_first_line, stream.fileno())
    await stream.close()
    async with asyncio.timeout(10):
        while not mark.exists():
            await asyncio.sleep(0.01)


def _first_line(fd: int) -> bytes:
    select.select([fd], [], [], 10)
    return os.read(fd, 100)


async def test_a_stream_ends_with_the_link(far: Far) -> None:
    stream = await far.open_stream(["cat"])
    closing = asyncio.create_task(far.link.close())
    assert await stream.wait() != 0
    await closing


async def test_a_cut_stream_has_no_exit_code(far: Far, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    argv = ["sh", "-c", 'touch "$1" && exec sleep 1000.25', "sh", str(begun)]
    running = asyncio.create_task(far.run(argv))
    stream = await far.open_stream(["cat"])
    started = await far.open_stream(["echo"])
    await started.wait()
    # Each command may have a connection of its own: one that begins after the cut is not cut.
    began = lambda: begun.exists() or running.done()  # noqa: E731
    await asyncio.to_thread(wait_for, began, what="the command's beginning")
    assert not running.done(), running
    await write_fd(stream.fileno(), b"there")
    assert await read_fd(stream.fileno(), 5) == b"there"
    far.cut(far.link)
    with pytest.raises(ConnectionFailed) as caught:
        await running
    assert caught.value.transient and "\n" not in caught.value.one_line()
    assert await stream.wait() == 255
    await stream.close()
    await started.close()


@INTO_PODS
async def test_a_transfer_has_an_ssh_like_program(far: Far) -> None:
    argv = [*far.link.remote_shell(node=far.node), "--", far.link.destination(far.node)]
    done = await asyncio.to_thread(
        subprocess.run, [*argv, "cat; exit 3"], input=b"\0in", capture_output=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (3, b"\0in")


async def test_commands_need_an_open_link(far: Far) -> None:
    with pytest.raises(ConnectionFailed, match="not connected to"):
        await far.another().run(["true"], node=far.node)


async def test_open_is_idempotent_and_works_after_close(far: Far) -> None:
    await asyncio.gather(far.link.open(), far.link.open())
    assert await far.link.is_alive()
    await far.link.close()
    assert not await far.link.is_alive()
    await far.link.close()
    await far.link.open()
    assert (await far.run(["echo", "again"])).text == "again\n"
