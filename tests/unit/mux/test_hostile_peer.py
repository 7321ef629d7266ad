"""A peer that lies: whatever comes, the conversation goes on or ends with one error."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hostile import JSON, frames, message, objects
from tests.unit.mux.rig import DEADLINE_S, End
from tunnelkit.mux import rpc
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.fd_io import read_fd, write_fd
from tunnelkit.mux.mux import Mux
from tunnelkit.mux.rpc import RpcError, RpcPeer
from tunnelkit.session.runtime.control_server import ControlServer, greet
from tunnelkit.wire.endpoint import Endpoint
from tunnelkit.wire.errors import ProtocolError
from tunnelkit.wire.handshake import NO_ID, Hello, Status

_HEADERS = objects(["type", "loop", "for", "generation", "rank", "pid"]) | st.just({"type": "rpc"})
_MESSAGES = objects(["id", "call", "notice", "params", "result", "error"]) | st.fixed_dictionaries(
    {"id": JSON, "call": st.sampled_from(["echo", "fail", "none"]), "params": JSON}
)
_STREAMS = frames(_HEADERS, st.binary(min_size=1, max_size=80) | _MESSAGES.map(message))
_HELLO = Hello(Status.FRESH, b"c" * 16, NO_ID, 0, 100)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it; an error that nobody would have heard of fails the test."""
    unheard: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: unheard.append(told))
        async with asyncio.timeout(DEADLINE_S):
            await work

    asyncio.run(main())
    assert not unheard


async def _echo(params: Any) -> Any:
    return params


async def _fail(params: Any) -> Any:
    raise rpc.error("no", params=params)


_HANDLERS: dict[str, rpc.Handler] = {"echo": _echo, "fail": _fail}


@given(_STREAMS, st.booleans(), st.integers(1, 2000), st.integers(0, 3))
def test_an_endpoint_raises_protocol_errors_only(
    stream: bytes, client: bool, piece: int, own: int
) -> None:
    endpoint = Endpoint(client=client, window_bytes=200)
    endpoint.link_up(0, 50)
    for _ in range(own):
        endpoint.send(endpoint.open({}), b"x" * 60)
    try:
        for start in range(0, len(stream), piece):
            endpoint.receive(stream[start : start + piece])
            endpoint.outgoing(1000)
    except ProtocolError:
        pass
    assert endpoint.open_channels <= own + 25


@given(_STREAMS)
def test_a_mux_ends_or_lives(stream: bytes) -> None:
    async def main() -> None:
        end = End(client=True, window_bytes=500)
        tasks: list[asyncio.Task[Any]] = []

        def opened(channel: Channel, header: dict[str, Any]) -> None:
            if header.get("type") == "rpc":
                tasks.append(asyncio.create_task(RpcPeer(channel, _HANDLERS).serve()))
            elif header.get("type") is None:
                channel.close({"error": "no"})

        end.serve = opened
        call = RpcPeer(end.mux.open({"type": "rpc"}), {})
        tasks += [asyncio.create_task(call.serve()), asyncio.create_task(call.call("x"))]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            lost = end.mux.attach(ours.fileno(), ours.fileno(), _HELLO)
            theirs.sendall(stream)
            theirs.shutdown(socket.SHUT_WR)
            await lost
            end.mux.end("over")
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, (RpcError, dict, str, int, float, list))

    run(main())


class _NoLink(Mux):
    """What the peer says is put in by hand, not by frames."""

    def consumed(self, channel_id: int, count: int) -> None:
        pass


@given(st.lists(_MESSAGES, max_size=20), st.binary(max_size=8), st.integers(1, 300))
def test_calls_are_answered_or_the_channel_ends(sent: list[Any], rest: bytes, piece: int) -> None:
    async def main() -> None:
        mux = _NoLink(Endpoint(client=True), lambda channel, header: None)
        channel = mux.open({"type": "rpc"})
        peer = RpcPeer(channel, _HANDLERS)
        serving, call = asyncio.create_task(peer.serve()), asyncio.create_task(peer.call("x"))
        stream = b"".join(message(one) for one in sent) + rest
        for start in range(0, len(stream), piece):
            channel.received(stream[start : start + piece])
            await asyncio.sleep(0)
        channel.received_eof()
        served, _ = await asyncio.gather(serving, call, return_exceptions=True)
        assert served is None or isinstance(served, RpcError)

    run(main())


@pytest.mark.parametrize("name", ["n" * 100_000, "echo"])
def test_calls_whose_answers_nobody_takes_don_t_pile_up(name: str) -> None:
    async def main() -> None:
        mux = _NoLink(Endpoint(client=True), lambda channel, header: None)
        channel = mux.open({"type": "rpc"})
        serving = asyncio.create_task(RpcPeer(channel, _HANDLERS).serve())
        call = message({"id": "i" * 10_000, "call": name, "params": {"text": "x" * 10_000}})
        for _ in range(20_000):
            channel.received(call)
            await asyncio.sleep(0)
            if serving.done():
                break
        assert channel.queued_bytes < 200_000_000
        with pytest.raises(RpcError, match="unanswered"):
            await serving

    run(main())


@given(st.binary(max_size=100) | _STREAMS.map(lambda stream: _HELLO.encode() + stream))
def test_the_control_socket_outlives_any_visitor(stream: bytes) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="tkc") as base:
            path = Path(base, "control.sock")
            server = ControlServer(path, lambda one: _HANDLERS, lambda channel, *_: channel.close())
            server.open()
            with socket.socket(socket.AF_UNIX) as visitor:
                visitor.connect(str(path))
                visitor.sendall(stream)
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(path))
                sock.setblocking(False)
                mux = Mux(Endpoint(client=True), lambda channel, header: None)
                peer = RpcPeer(mux.open({"type": "rpc"}), {})
                serving = asyncio.create_task(peer.serve())
                hello, rest = await greet(sock, b"c" * 16)
                lost = mux.attach(sock.fileno(), sock.fileno(), hello, rest)
                assert await peer.call("echo", text="still here") == {"text": "still here"}
                mux.end("done")
                await asyncio.gather(serving, return_exceptions=True)
                lost.cancel()
            await server.close()
            assert not server.connections

    run(main())


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_a_greeting_of_noise_is_a_protocol_error(pieces: list[bytes]) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            for piece in pieces:
                await write_fd(theirs.fileno(), piece)
            theirs.shutdown(socket.SHUT_WR)
            try:
                await greet(ours, b"c" * 16)
            except ProtocolError:
                pass
            assert await read_fd(theirs.fileno())

    run(main())
