"""The lab's proxy alone."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from tests.support.ports import free_port
from tunnelkit.lab.proxy import Proxy


async def _proxied(rtt_s: float) -> tuple[Proxy, asyncio.Server, tuple[str, int]]:
    """A proxy in front of an echo server; where to dial."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    upstream = await asyncio.start_server(echo, "127.0.0.1", 0)
    listen = ("127.0.0.1", free_port())
    proxy = Proxy(listen, upstream.sockets[0].getsockname(), rtt_s)
    await proxy.open()
    return proxy, upstream, listen


@pytest.mark.parametrize("rtt_s", [0.0, 0.02])
async def test_bytes_arrive_whole_and_in_order_with_eof(rtt_s: float) -> None:
    proxy, upstream, listen = await _proxied(rtt_s)
    reader, writer = await asyncio.open_connection(*listen)
    sent = os.urandom(8 << 20)
    reading = asyncio.ensure_future(reader.read(-1))

    async def write() -> None:
        for start in range(0, len(sent), 100_000):
            writer.write(sent[start : start + 100_000])
            await writer.drain()
            if start == 4_000_000:
                proxy.set_cut(True)
                proxy.set_cut(False)
                proxy.set_rtt(0.005)
        writer.write_eof()

    async with asyncio.timeout(30):
        await write()
        assert await reading == sent
        writer.close()
        while proxy.status()["connections"]:
            await asyncio.sleep(0.01)
    proxy.reset()
    upstream.close()


async def test_distance_costs_latency_and_not_throughput() -> None:
    proxy, upstream, listen = await _proxied(0.1)
    reader, writer = await asyncio.open_connection(*listen)
    size = 32 << 20
    async with asyncio.timeout(30):
        writer.write(b"x")
        await reader.readexactly(1)
        started = time.monotonic()
        writer.write(bytes(size))
        await reader.readexactly(size)
        spent_s = time.monotonic() - started
    # 32 MiB with one window of 64 KiB a round trip would take 51 s.
    assert 0.1 <= spent_s < 5
    writer.close()
    proxy.reset()
    upstream.close()
