"""`Channel.write_soon`: small messages of one round of the event loop go together."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.unit.mux.rig import ends, soon, until


async def test_small_messages_of_one_round_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a single message nothing waits; of 40, two bunches of 16 and the rest."""
    async with ends() as pair:
        channels = [pair.client.mux.open({}) for _ in range(40)]
        await until(lambda: len(pair.server.channels) == 40)
        sizes: list[int] = []
        writev = os.writev

        def counted(fd: int, buffers: Any) -> int:
            sizes.append(sum(bytes(one) == b"hello" for one in buffers))
            return writev(fd, buffers)

        monkeypatch.setattr(os, "writev", counted)
        for channel in channels:
            channel.write_soon(b"hello")
        assert [one for one in sizes if one] == [1, 16, 16]
        await asyncio.sleep(0)
        assert [one for one in sizes if one] == [1, 16, 16, 7]
        # The round is over: the first message of the next one goes at once, and of each after it.
        for rounds in (1, 2, 3):
            channels[0].write_soon(b"hello")
            assert [one for one in sizes if one][4:] == [1] * rounds
            await asyncio.sleep(0)
        await until(lambda: all(one._chunks for one in pair.server.channels))


async def test_an_aborted_channel_has_sent_what_waited_for_its_round() -> None:
    """A server that refuses an upload and hangs up: its last words come before the reset."""
    async with ends() as pair:
        other, channel = pair.client.mux.open({}), pair.client.mux.open({})
        await until(lambda: len(pair.server.channels) == 2)
        other.write_soon(b"first of the round")
        channel.write_soon(b"413")
        channel.abort()
        assert await soon(pair.server.channels[1].read()) == b"413"


async def test_a_long_message_waits_for_no_other() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        for _ in range(2):
            channel.write_soon(b"x" * 10_000)
            assert channel.queued_bytes == 0
