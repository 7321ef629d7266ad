"""Adapters that are made when an editor asks: few at a time, and none that nobody wants."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.debug.test_loop_close import Agent
from tunnelkit.debug.adapter.adapter import MOST_STARTING, Adapter, Adapters
from tunnelkit.debug.adapter.adapter_on_demand import AdapterOnDemand
from tunnelkit.debug.adapter.kept_connection import keep
from tunnelkit.debug.dap.messages import Message
from tunnelkit.debug.dap.shared_connection import SharedConnection
from tunnelkit.errors import DebugError
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.dap_framing import frame
from tunnelkit.mux.tasks import cancel_all

_DEADLINE_S = 30.0
STOPPED = frame(b'{"seq": 1, "type": "event", "event": "stopped", "body": {"threadId": 1}}')
TERMINATED = frame(b'{"seq": 2, "type": "event", "event": "terminated"}')


class Counted(Adapters):
    """Counts the adapters that are starting. Each takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.starting = self.most = 0
        self.go = asyncio.Event()

    async def _start(self) -> Adapter:
        self.starting += 1
        self.most = max(self.most, self.starting)
        try:
            await self.go.wait()
        finally:
            self.starting -= 1
        return Adapter(0, 0, -1)


async def test_at_most_4_start_at_a_time() -> None:
    adapters = Counted()
    ranks = [
        AdapterOnDemand(lambda: asyncio.create_task(adapters.start()))
        for _ in range(3 * MOST_STARTING)
    ]
    for one in ranks:
        one.want()
        one.want()
    waiting = [asyncio.create_task(one.wait_for_debuggee()) for one in ranks]
    for _ in range(10):
        await asyncio.sleep(0)
    assert adapters.starting == adapters.most == MOST_STARTING == 4
    # One that is not wanted any more makes room.
    await ranks[0].close()
    for _ in range(10):
        await asyncio.sleep(0)
    assert adapters.starting == MOST_STARTING
    adapters.go.set()
    await asyncio.wait(waiting, timeout=_DEADLINE_S)
    assert adapters.most == MOST_STARTING and adapters.starting == 0
    await asyncio.gather(*(one.close() for one in ranks), return_exceptions=True)
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_real_ones_start_side_by_side() -> None:
    adapters = Adapters()
    async with asyncio.timeout(_DEADLINE_S):
        made = await asyncio.gather(*(adapters.start() for _ in range(6)))
        try:
            ports = {port for one in made for port in (one.client_port, one.server_port)}
            assert len(ports) == 12
            # All at once: an adapter whose client hangs up may end.
            open_ones = [await asyncio.open_connection("127.0.0.1", port) for port in ports]
            for _, writer in open_ones:
                writer.close()
        finally:
            for one in made:
                one.close()
            await adapters.close()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[socket.socket, Adapter]]:
    """An adapter that only listens, and its socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        yield server, Adapter(port, port, -1)


async def test_one_that_can_not_start_is_its_editors_to_know_and_is_tried_again() -> None:
    async with listening() as (_, adapter):
        tries: list[Callable[[], Adapter]] = []

        async def start() -> Adapter:
            tries.append(lambda: adapter)
            if len(tries) == 1:
                raise OSError(24, "Too many open files")
            return adapter

        one = AdapterOnDemand(lambda: asyncio.create_task(start()))
        debuggee = asyncio.create_task(one.wait_for_debuggee())
        assert await one.connect_debuggee() is None, "nobody wants it yet"
        with pytest.raises(DebugError, match="did not start on this machine") as failure:
            await one.connect_editor()
        assert "Too many open files" in failure.value.one_line()
        await asyncio.sleep(0)
        assert not debuggee.done() and not one.is_wanted
        async with asyncio.timeout(_DEADLINE_S):
            (await one.connect_editor()).close()
            (await debuggee).close()
        assert len(tries) == 2
        await one.close()
        # As the adapter of a run that is over.
        with pytest.raises(OSError, match="the run is over"):
            await one.connect_editor()


class Kept:
    """A debuggee's connection without an adapter, and what a console sees of it."""

    def __init__(self, adapter: AdapterOnDemand | None = None) -> None:
        self.events: list[Message] = []
        self.connection = SharedConnection(on_event=self.events.append)
        self.connection.watched = True
        self.channel: Channel = Agent().mux.open({})
        self.keeping = asyncio.create_task(keep(self.channel, self.connection, adapter))


async def test_a_console_has_the_messages_until_the_adapter_comes() -> None:
    async with listening() as (server, adapter):
        one = AdapterOnDemand(lambda: asyncio.create_task(asyncio.sleep(0, adapter)))
        kept = Kept(one)
        await asyncio.sleep(0)
        kept.channel.received(STOPPED[:50])
        kept.channel.received(STOPPED[50:])
        assert [event["event"] for event in kept.events] == ["stopped"]
        one.want()
        async with asyncio.timeout(_DEADLINE_S):
            joined = await kept.keeping
            other, _ = await asyncio.get_running_loop().sock_accept(server)
        assert joined is not None and joined.getpeername() == server.getsockname()
        # What comes from now on is for the splice.
        kept.channel.received(STOPPED)
        assert len(kept.events) == 1 and not kept.channel.is_over
        assert kept.connection.from_debuggee(kept.channel.take()) == STOPPED
        joined.close()
        other.close()
        await one.close()


@pytest.mark.parametrize("end", ["says so", "hangs up", "is no debugger", "never"])
async def test_a_debuggee_ends_before_any_editor_wants_it(end: str) -> None:
    one = AdapterOnDemand(lambda: asyncio.create_task(asyncio.sleep(0, Adapter(0, 0, -1))))
    kept = Kept(one)
    await asyncio.sleep(0)
    async with asyncio.timeout(_DEADLINE_S):
        if end == "never":
            await cancel_all(kept.keeping)
        elif end == "is no debugger":
            kept.channel.received(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(ConnectionAbortedError):
                await kept.keeping
        else:
            kept.channel.received(STOPPED + TERMINATED)
            if end == "hangs up":
                kept.channel.received_eof()
            assert await kept.keeping is None
            assert json.loads(STOPPED[STOPPED.index(b"{") :]) in kept.events
    assert kept.channel.is_over and not one.is_wanted
    await one.close()
