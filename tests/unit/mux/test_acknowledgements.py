"""Acknowledgements ride with other frames; alone they wait a little, and not for ever."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.unit.mux.rig import echo, ends, soon, until
from tunnelkit.wire.endpoint import ACK_AT_BYTES


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every write to a link."""
    seen: list[int] = []
    writev = os.writev

    def counted(fd: int, buffers: Any) -> int:
        count = writev(fd, buffers)
        seen.append(count)
        return count

    monkeypatch.setattr(os, "writev", counted)
    return seen


async def test_a_question_and_its_answer_are_a_packet_each(writes: list[int]) -> None:
    async with ends() as pair:
        pair.server.serve = lambda channel, header: pair.spawn(echo(channel)) and None
        channel = pair.client.mux.open({})
        await channel.write(b"warm")
        assert await soon(channel.read()) == b"warm"
        before = len(writes)
        for _ in range(10):
            await channel.write(b"x")
            assert await soon(channel.read()) == b"x"
        # Room for two by the timer, should this machine be slow just now.
        assert 20 <= len(writes) - before <= 22


async def test_what_nobody_answers_is_acknowledged_all_the_same() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        await channel.write(b"x")
        await until(lambda: pair.client.mux.endpoint.unacked_bytes == 0)


async def test_bulk_is_acknowledged_as_it_comes() -> None:
    """What the sender keeps is bounded though the receiver has nothing to say."""
    async with ends(8 << 20) as pair:
        channel = pair.client.mux.open({})
        sender = pair.client.mux.endpoint
        kept = []
        for _ in range(64):
            await channel.write(bytes(64 * 1024))
            await until(lambda: channel.queued_bytes == 0)
            kept.append(sender.unacked_bytes)
        # Less than one delay's worth beyond what the link itself holds.
        assert max(kept) < 8 * ACK_AT_BYTES
        await until(lambda: sender.unacked_bytes == 0)


async def test_the_timer_ends_with_the_link() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        await channel.write(b"x")
        await until(lambda: bool(pair.server.channels))
        pair.cut()
        assert pair.server.mux._ack_timer is None
        pair.link()
        await until(lambda: pair.client.mux.endpoint.unacked_bytes == 0)
