"""`tk run` feeds its stdin to the command, and warns of nothing if the command ends first."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from typing import cast

import pytest

from tunnelkit.cli.commands.node.run import _feed
from tunnelkit.cli.terminal import tty
from tunnelkit.mux.channel import Channel

#: For what must come; a test that waits as long has failed.
_PATIENCE_S = 20.0


class _Channel:
    """Takes what is written once it may."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.may_write = asyncio.Event()
        self.ended = False

    async def write(self, data: bytes) -> None:
        await self.may_write.wait()
        self.written.append(data)

    def write_eof(self) -> None:
        self.ended = True


async def test_all_goes_in_order_and_a_slow_command_holds_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunks = [bytes([number]) * 1000 for number in range(50)]
    left = [*chunks, b""]
    # One that is being written and three behind it.
    most_left = len(left) - 4
    read = threading.Event()

    def read_keys(fd: int) -> bytes:
        data = left.pop(0)
        if len(left) == most_left:
            read.set()
        return data

    monkeypatch.setattr(tty, "read_keys", read_keys)
    channel = _Channel()
    feed = asyncio.create_task(_feed(cast(Channel, channel)))
    assert await asyncio.to_thread(read.wait, _PATIENCE_S)
    assert len(left) == most_left
    channel.may_write.set()
    async with asyncio.timeout(_PATIENCE_S):
        await feed
    assert channel.written == chunks and channel.ended


class _Loop(asyncio.SelectorEventLoop):
    """Says when a thread has handed something over after the loop's last turn."""

    handed_over: threading.Event | None = None

    def call_soon_threadsafe(self, *args: object, **kwargs: object) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(*args, **kwargs)  # type: ignore[arg-type]
        if self.handed_over is not None:
            self.handed_over.set()
        return handle


def test_input_that_comes_as_the_command_ends_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, reading = threading.Event(), threading.Event()

    def read_keys(fd: int) -> bytes:
        reading.set()
        ended.wait(_PATIENCE_S)
        return b""

    async def one_that_ends() -> None:
        feed = asyncio.create_task(_feed(cast(Channel, _Channel())))
        await asyncio.sleep(0)
        assert await asyncio.to_thread(reading.wait, _PATIENCE_S)
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()

    monkeypatch.setattr(tty, "read_keys", read_keys)
    loop = _Loop()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loop.run_until_complete(one_that_ends())
        loop.handed_over = threading.Event()
        ended.set()
        assert loop.handed_over.wait(_PATIENCE_S)
        loop.close()
        gc.collect()
    assert [str(one.message) for one in warned if one.category is RuntimeWarning] == []
