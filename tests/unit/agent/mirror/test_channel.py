"""The mirror's channel as it is on the wire: in this process, from `agent files`, and from a
real agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.loop_rig import loop_rig
from tests.unit.agent.mirror_side import content, file, parts_of, sha, tree_of
from tests.unit.agent.relay_rig import process_table
from tests.unit.mux.rig import ends, soon, until
from tunnelkit import agent_zip as payload
from tunnelkit.agent.debug.restart_loop import RestartLoop
from tunnelkit.agent.mirror.file_thread import FileGate
from tunnelkit.agent.mirror.service import MirrorService
from tunnelkit.errors import TunnelkitError
from tunnelkit.mirror.agent.channel import ParcelReader
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.parcels import encode
from tunnelkit.session.agent.client import AgentClient, AgentGone
from tunnelkit.session.agent.local_process import LocalStream, open_local_stream


class Client:
    """The laptop's end of one mirror channel."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._reader = ParcelReader(channel)

    async def answer(self) -> dict[str, Any] | None:
        parcel = await soon(self._reader.read())
        return None if parcel is None else parcel[0]

    async def send(self, *parcels: Any) -> None:
        for parcel in parcels:
            header, data = parcel if isinstance(parcel, tuple) else (parcel, b"")
            await soon(self.channel.write(encode(header, data)))

    async def batch(self, number: int, *parcels: Any) -> dict[str, Any]:
        """A whole batch; its proof."""
        begin, commit = {"op": "begin", "batch": number}, {"op": "commit", "batch": number}
        await self.send(begin, *parcels, commit)
        committed = await self.answer()
        assert committed is not None
        assert (committed["batch"], committed["committed"], committed["results"]) == (
            number,
            True,
            {},
        )
        proof = await self.answer()
        assert proof is not None
        assert (proof["batch"], proof["differ"]) == (number, {})
        return dict(proof["proof"])


@asynccontextmanager
async def served(root: Path, **header: Any) -> AsyncIterator[tuple[Client, MirrorService, Any]]:
    files = MirrorService()
    async with ends() as pair:
        pair.server.serve = files.serve
        channel = pair.client.mux.open({"type": "mirror", "root": str(root), **header})
        try:
            yield Client(channel), files, pair
        finally:
            await soon(files.close())


async def test_its_life(root: Path) -> None:
    async with served(root) as (client, files, _):
        hello = await client.answer()
        state = root.stat()
        assert hello == {
            "ok": True,
            "dev": state.st_dev,
            "ino": state.st_ino,
            "instance": files.instance,
        }
        assert list(await client.batch(1, file("a", b"1"))) == ["a"]
        assert list(await client.batch(2, file("a", b"2", content(b"1")))) == ["a"]
        assert tree_of(root) == {"a": b"2"}
        client.channel.close()
        await until(lambda: not files._tasks)


async def test_batches_may_follow_each_other_without_waiting(root: Path) -> None:
    async with served(root) as (client, _, _pair):
        await client.answer()
        for number in range(1, 51):
            before = content(b"%d" % (number - 1))
            await client.send(
                {"op": "begin", "batch": number},
                file("a", b"%d" % number, before),
                {"op": "commit", "batch": number},
            )
        answers = [await client.answer() for _ in range(100)]
        assert [one["batch"] for one in answers if one] == [n for n in range(1, 51) for _ in "ab"]
        assert all(one and ("committed" in one) is (at % 2 == 0) for at, one in enumerate(answers))
        assert tree_of(root) == {"a": b"50"}


async def test_many_bytes_flow(root: Path) -> None:
    data = os.urandom(1_000_000)
    async with served(root) as (client, _, _pair):
        await client.answer()
        header, _ = file("big", data * 12, more=True)
        pieces = [({"op": "data", "last": n == 10}, data) for n in range(11)]
        assert list(await client.batch(1, (header, data), *pieces)) == ["big"]
    assert (root / "big").read_bytes() == data * 12


async def test_refusals(root: Path) -> None:
    owner = root.parent / "owner"
    owner.write_text("somebody")
    asked = {"owner": {"file": str(owner), "id": "mine"}}
    for where, header, code in (
        (root / "absent", {}, "no-root"),
        (root, asked, "displaced"),
        (root, {"owner": {"no": "owner"}}, "protocol"),
    ):
        async with served(where, **header) as (client, _, _pair):
            answer = await client.answer()
            assert answer is not None
            assert answer["error"] == code
            assert answer.get("owner") == ("somebody" if code == "displaced" else None)
            assert await client.answer() is None


async def test_nonsense_is_told_and_ends_it(root: Path) -> None:
    async with served(root) as (client, _, _pair):
        await client.answer()
        await client.send({"op": "begin", "batch": 1}, file("a", b"1"), {"op": "what"})
        answer = await client.answer()
        assert answer is not None
        assert answer["error"] == "protocol"
        assert await client.answer() is None
    assert tree_of(root) == {}


@pytest.mark.parametrize("how", ["close", "abort", "conversation", "agent"])
async def test_its_end_in_the_middle_of_a_file_leaves_nothing(root: Path, how: str) -> None:
    async with served(root) as (client, files, pair):
        await client.answer()
        half = file("new/a", b"half", more=True)
        await client.send({"op": "begin", "batch": 1}, file("b", b"1"), half)
        await until(lambda: len(parts_of(root)) == 3)
        if how == "close":
            client.channel.close()
        elif how == "abort":
            client.channel.abort()
        elif how == "conversation":
            pair.client.mux.end("over")
        else:
            await soon(files.close())
        await until(lambda: not files._tasks)
        assert tree_of(root) == {}


async def test_a_link_that_is_cut_is_not_its_end(root: Path) -> None:
    async with served(root) as (client, _, pair):
        await client.answer()
        await client.send({"op": "begin", "batch": 1}, file("a", b"half", more=True))
        await until(lambda: bool(parts_of(root)))
        pair.cut()
        await client.send({"op": "drop"}, file("b", b"1"), {"op": "commit", "batch": 1})
        pair.link()
        assert (await client.answer() or {})["committed"]
        assert tree_of(root) == {"b": b"1"}


async def test_debug_traffic_goes_on_beside_a_big_batch(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 5000
    parcels = [file(f"p{n % 200}/module_{n}.py", b"%d\n" % n * 200) for n in range(count)]
    async with served(root) as (client, _, _pair):
        await client.answer()
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        turning = asyncio.create_task(turn())
        before = os.times()
        await client.send({"op": "begin", "batch": 1}, *parcels)
        turns = 0
        await client.send({"op": "commit", "batch": 1})
        committed = await client.answer()
        while_committing = turns
        after = os.times()
        assert committed is not None
        assert committed["results"] == {}
        assert len((await client.answer() or {})["proof"]) == count
        turning.cancel()
        assert while_committing > 0
        user, system = after.user - before.user, after.system - before.system
        with capsys.disabled():
            print(f"\n{count} files, both ends: {user:.2f} s user, {system:.2f} s system")


# -- the gate -------------------------------------------------------------


async def test_waiting_at_the_gate() -> None:
    gate = FileGate()
    await soon(gate.wait_open())
    with gate:
        with gate:
            waiting = [asyncio.create_task(gate.wait_open()) for _ in range(3)]
            waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert not any(one.done() for one in waiting[1:])
    await soon(asyncio.gather(*waiting[1:]))
    assert gate.is_open


@asynccontextmanager
async def running(
    directory: Path, gate: FileGate
) -> AsyncIterator[tuple[RestartLoop, asyncio.Task[None]]]:
    spec = {"argv": [sys.executable, "main.py"], "cwd": str(directory), "grace_s": 1.0}
    async with process_table() as table:
        loop = RestartLoop(1, spec, table, lambda *told: None, None, gate)
        task = asyncio.create_task(loop.run())
        try:
            yield loop, task
        finally:
            loop.stop()
            await soon(task)


async def test_no_run_begins_while_the_gate_is_closed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = (
        f"import time; print({{!r}}, file=open({str(out)!r}, 'a'), flush=True); time.sleep(99)"
    )
    gate = FileGate()
    gate.__enter__()
    (tmp_path / "main.py").write_text(program.format("half"))
    async with running(tmp_path, gate) as (loop, _):
        await until(lambda: bool(gate._waiting))
        assert loop.state == "new"
        (tmp_path / "main.py").write_text(program.format("whole"))
        gate.__exit__()
        await until(lambda: out.exists() and out.read_text().endswith("\n"))
    assert out.read_text() == "whole\n"


async def test_a_loop_that_waits_at_the_gate_can_be_stopped(tmp_path: Path) -> None:
    gate = FileGate()
    with gate:
        async with running(tmp_path, gate) as (loop, task):
            await until(lambda: bool(gate._waiting))
            loop.stop()
            await soon(task)
            assert loop.state == "stopped"
        assert not gate._waiting


async def test_a_run_that_stood_by_gets_no_go_while_the_gate_is_closed(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("x = 1\n")
    gate = FileGate()
    async with loop_rig(tmp_path) as rig:
        rig.loop._gate = gate
        stop = await rig.f5(1)
        await rig.event("standby")
        with gate:
            await stop.finish()
            await until(lambda: bool(gate._waiting))
            (tmp_path / "main.py").write_text("x = 2\n")
        stop = await rig.f5(2)
        await stop.finish()


# -- agent files ----------------------------------------------------------


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


# -- a real agent ---------------------------------------------------------


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
