from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.mux.rig import Ends, ends, soon, until
from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.rpc import RpcError, RpcPeer


class Service:
    """Handlers with something to wait for and something to see."""

    def __init__(self) -> None:
        self.notices: list[dict[str, Any]] = []
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = False
        self.calls = 0

    @property
    def handlers(self) -> dict[str, rpc.Handler]:
        return {
            "add": self.add,
            "hold": self.hold,
            "fail": self.fail,
            "crash": self.crash,
            "unsayable": self.unsayable,
            "note": self.note,
            "cancel": self.cancel,
            "odd": self.odd,
        }

    async def add(self, params: dict[str, Any]) -> int:
        self.calls += 1
        return int(params["a"]) + int(params["b"])

    async def hold(self, params: dict[str, Any]) -> str:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "held"

    async def fail(self, params: dict[str, Any]) -> None:
        raise rpc.error("no such loop", hint="tk loop --list")

    async def crash(self, params: dict[str, Any]) -> None:
        raise RuntimeError("a bug")

    async def unsayable(self, params: dict[str, Any]) -> object:
        return object()

    async def note(self, params: dict[str, Any]) -> None:
        self.notices.append(params)

    async def cancel(self, params: dict[str, Any]) -> None:
        raise asyncio.CancelledError

    async def odd(self, params: dict[str, Any]) -> None:
        raise rpc.error("odd", why=object())


@asynccontextmanager
async def peers() -> AsyncIterator[tuple[Ends, RpcPeer, Service, asyncio.Task[Any]]]:
    service = Service()
    async with ends() as pair:
        pair.server.serve = lambda channel, header: (
            pair.spawn(RpcPeer(channel, service.handlers).serve()) and None
        )
        client = RpcPeer(pair.client.mux.open({"type": "rpc"}), {"note": service.note})
        serving = pair.spawn(client.serve())
        yield pair, client, service, serving


async def test_call_and_answer() -> None:
    async with peers() as (_, client, _service, _serving):
        assert await soon(client.call("add", a=1, b=2)) == 3
        assert await soon(client.call("note", text="é\udc80")) is None


async def test_calls_run_side_by_side() -> None:
    async with peers() as (pair, client, service, _serving):
        held = pair.spawn(client.call("hold"))
        await soon(service.entered.wait())
        assert await soon(asyncio.gather(*[client.call("add", a=n, b=n) for n in range(50)])) == [
            2 * n for n in range(50)
        ]
        service.release.set()
        assert await soon(held) == "held"


async def test_notices_arrive_in_order() -> None:
    async with peers() as (_, client, service, _serving):
        for number in range(100):
            client.notify("note", number=number)
        client.notify("unknown")
        await soon(client.call("add", a=0, b=0))
        assert [one["number"] for one in service.notices] == list(range(100))


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("fail", {}, "no such loop"),
        ("crash", {}, "RuntimeError: a bug"),
        ("unsayable", {}, "TypeError: Object of type object is not JSON serializable"),
        ("add", {"a": 1}, "KeyError: 'b'"),
        ("add", {"a": "x", "b": 1}, "ValueError: invalid literal"),
        ("nothing", {}, "unknown call 'nothing'"),
        ("cancel", {}, "cancelled"),
        ("odd", {}, "odd"),
    ],
)
async def test_an_error_reaches_the_caller_whatever_it_was(
    method: str, params: dict[str, Any], message: str
) -> None:
    async with peers() as (_, client, _service, _serving):
        with pytest.raises(RpcError) as failure:
            await soon(client.call(method, **params))
        assert str(failure.value).startswith(message)
        assert "gone" not in failure.value.data
        if method == "fail":
            assert failure.value.data["hint"] == "tk loop --list"
        assert await soon(client.call("add", a=1, b=2)) == 3


async def test_calls_in_flight_survive_cuts_and_run_once() -> None:
    async with peers() as (pair, client, service, _serving):
        held = pair.spawn(client.call("hold"))
        await soon(service.entered.wait())
        pair.cut()
        calls = [pair.spawn(client.call("add", a=n, b=1)) for n in range(10)]
        pair.link()
        pair.link()
        service.release.set()
        assert await soon(held) == "held"
        assert await soon(asyncio.gather(*calls)) == [n + 1 for n in range(10)]
        assert service.calls == 10


async def test_calls_in_flight_fail_at_the_end_and_handlers_are_cancelled() -> None:
    async with peers() as (pair, client, service, serving):
        held = pair.spawn(client.call("hold"))
        await soon(service.entered.wait())
        pair.server.mux.end("agent ends")
        with pytest.raises(RpcError) as failure:
            await soon(held)
        assert failure.value.data["gone"] is True
        await soon(serving)
        await until(lambda: service.cancelled)
        with pytest.raises(RpcError):
            await client.call("add", a=1, b=2)
        client.notify("note")


async def test_cancelling_serve_fails_calls_in_flight() -> None:
    async with peers() as (pair, client, service, serving):
        held = pair.spawn(client.call("hold"))
        await soon(service.entered.wait())
        serving.cancel()
        with pytest.raises(RpcError, match="connection ended"):
            await soon(held)
        await asyncio.wait([serving])
        assert serving.cancelled()


def message(value: Any) -> bytes:
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("!I", len(payload)) + payload


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!I", 2**32 - 1),
        message(b"{]"),
        message(b"\xff"),
        message([1]),
        message(b"[" * 100_000),
    ],
    ids=["too long", "no json", "no utf-8", "no object", "deep"],
)
async def test_bytes_that_are_no_message_end_the_channel(data: bytes) -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        await until(lambda: bool(pair.server.channels))
        serving = pair.spawn(RpcPeer(pair.server.channels[0], {}).serve())
        await channel.write(data)
        with pytest.raises(RpcError, match=r"message"):
            await soon(serving)
        detail = await soon(channel.closed())
        assert "message" in detail["error"]


async def test_odd_messages_are_ignored_or_answered() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        await until(lambda: bool(pair.server.channels))
        peer = RpcPeer(pair.server.channels[0], {})
        pair.spawn(peer.serve())
        call = pair.spawn(peer.call("x"))
        for odd in ({}, {"id": [1]}, {"id": None, "error": 1}, {"id": 99, "result": 1}):
            await channel.write(message(odd))
        await channel.write(message({"id": 1, "error": "just text"}))
        with pytest.raises(RpcError, match="just text"):
            await soon(call)


async def test_a_message_in_many_pieces() -> None:
    async with ends() as pair:
        channel = pair.client.mux.open({})
        await until(lambda: bool(pair.server.channels))
        reader = rpc.MessageReader(pair.server.channels[0])

        async def write(channel: Channel) -> None:
            for byte in message({"a": "x" * 100}) + message({"b": 1}):
                await channel.write(bytes([byte]))
                await asyncio.sleep(0)
            channel.write_eof()

        pair.spawn(write(channel))
        assert await soon(reader.read()) == {"a": "x" * 100}
        assert await soon(reader.read()) == {"b": 1}
        assert await soon(reader.read()) is None


async def test_a_message_that_is_too_long_is_refused_at_its_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "MAX_MESSAGE_BYTES", 1000)
    async with peers() as (_, client, _service, _serving):
        with pytest.raises(RpcError, match="too long"):
            await client.call("note", text="x" * 2000)
        assert await soon(client.call("add", a=1, b=2)) == 3
