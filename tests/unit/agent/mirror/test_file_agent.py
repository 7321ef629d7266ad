"""The mirror's channel of `agent files`, and of a real agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.agent.mirror.test_channel import Client
from tests.unit.agent.mirror_side import file, parts_of, sha, tree_of
from tests.unit.mux.rig import soon, until
from tunnelkit import agent_zip as payload
from tunnelkit.errors import TunnelkitError
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.agent.local_process import LocalStream, open_local_stream


@pytest.fixture(scope="module")
def agent_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / payload.build().file_name
    path.write_bytes(payload.build().data)
    return path


class Server:
    """`agent files` with an AgentClient on it, or another command of the agent."""

    def __init__(self, agent_zip: Path, *words: str) -> None:
        self.argv = [sys.executable, "-I", "-S", str(agent_zip), *(words or ("files",))]
        self.streams: list[LocalStream] = []
        self.client = self.new_client()

    def new_client(self) -> AgentClient:
        return AgentClient(self._dial, on_channel=lambda channel, header: None, notices={})

    async def _dial(self) -> LocalStream:
        self.streams.append(await open_local_stream(self.argv))
        return self.streams[-1]

    @property
    def pid(self) -> int:
        return self.streams[-1]._process.pid

    async def mirror(self, root: Path) -> Client:
        client = Client(self.client.open({"type": "mirror", "root": str(root), "owner": None}))
        assert (await client.answer() or {})["ok"]
        return client

    async def close(self) -> None:
        await self.client.close("the test is over")
        for stream in self.streams:
            await stream.close()


@pytest.fixture
async def server(agent_zip: Path) -> AsyncIterator[Server]:
    one = Server(agent_zip)
    await one.client.connect()
    yield one
    await one.close()


async def test_a_closed_conversation_leaves_nothing_in_the_event_loop(agent_zip: Path) -> None:
    """Else the next child whose output is read from a descriptor of that number hangs."""
    server = Server(agent_zip)
    await server.client.connect()
    stream = server.streams[0]
    fd, close = stream.fileno(), stream.close

    async def close_at_once() -> None:
        stream._sock.close()  # as a stream over ssh does it
        await close()

    stream.close = close_at_once  # type: ignore[method-assign]
    watched = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
    assert fd in watched
    await server.client.close("the test is over")
    assert fd not in watched


async def test_files_serves_the_mirror_and_no_more(server: Server, root: Path) -> None:
    info = await soon(server.client.call("info"))
    assert info["pid"] == server.pid
    assert info["node"] == os.uname().nodename
    client = await server.mirror(root)
    assert list(await client.batch(1, file("d/a", b"1"))) == ["d/a"]
    told = await soon(
        server.client.call("mirror.differing", root=str(root), expected={"d/a": sha(b"2")})
    )
    assert told == ["d/a"]
    row = ["d/a", "f", 1, 0o644, sha(b"1"), ""]
    answer = await soon(server.client.call("mirror.verify", root=str(root), files=[row]))
    assert list(answer["stamps"]) == ["d/a"]
    refused = server.client.open({"type": "exec", "argv": ["true"]})
    assert "no channel" in (await soon(refused.closed()))["error"]
    with pytest.raises(TunnelkitError):
        await soon(server.client.call("shutdown"))


@pytest.mark.parametrize("how", ["stdin", "bye", "TERM", "HUP"])
async def test_files_ends_with_its_stream_and_leaves_nothing(
    server: Server, root: Path, how: str
) -> None:
    client = await server.mirror(root)
    half = file("new/a", b"half", more=True)
    await client.send({"op": "begin", "batch": 1}, file("b", b"1"), half)
    await until(lambda: len(parts_of(root)) == 3)
    stream = server.streams[0]
    if how == "stdin":
        server.client.drop_link("cut")
        stream._sock.shutdown(1)
    elif how == "bye":
        server.client.mux.end("over")
    else:
        os.kill(server.pid, getattr(signal, f"SIG{how}"))
    assert await soon(stream._process.wait()) == 0
    assert stream.diagnosis() == ""
    assert tree_of(root) == {}


async def test_a_client_that_comes_back_is_unknown(server: Server) -> None:
    server.client.drop_link("cut")
    with pytest.raises(AgentGone, match="restarted"):
        await soon(server.client.run())
    assert len(server.streams) == 2
    assert await soon(server.streams[1]._process.wait()) in (1, -signal.SIGTERM)


async def test_what_a_killed_one_left_is_cleaned_up(
    agent_zip: Path, server: Server, root: Path
) -> None:
    client = await server.mirror(root)
    await client.send({"op": "begin", "batch": 1}, file("a", b"half", more=True))
    await until(lambda: bool(parts_of(root)))
    os.kill(server.pid, signal.SIGKILL)
    await soon(server.streams[0]._process.wait())
    assert parts_of(root)
    other = Server(agent_zip)
    await other.client.connect()
    try:
        answer = await soon(
            other.client.call("mirror.verify", root=str(root), files=[], clean=True)
        )
        assert answer["cleaned"] == 1
        assert tree_of(root) == {}
    finally:
        await other.close()


async def test_noise_instead_of_a_hello_ends_it(agent_zip: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(agent_zip), "files"]
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await soon(process.communicate(b"x" * 100_000))
    assert process.returncode == 1
    assert b"Traceback" not in err
    assert b"x" * 100 not in out


async def test_an_agent_serves_it_too_and_cleans_up_at_its_end(agent_zip: Path, root: Path) -> None:
    server = Server(agent_zip, "attach", f"test-{uuid.uuid4().hex[:12]}", "--start")
    await server.client.connect()
    try:
        client = await server.mirror(root)
        assert list(await client.batch(1, file("a", b"1"))) == ["a"]
        half = file("new/a", b"half", more=True)
        await client.send({"op": "begin", "batch": 2}, half)
        await until(lambda: bool(parts_of(root)))
        told = await soon(server.client.call("mirror.verify", root=str(root), files=[], clean=True))
        # Of a channel that is open.
        assert told["cleaned"] == 0
    finally:
        await soon(server.client.call("shutdown", reason="the test is over"))
        await soon(server.client.wait_ended())
        await server.close()
    await until(lambda: tree_of(root) == {"a": b"1"})
