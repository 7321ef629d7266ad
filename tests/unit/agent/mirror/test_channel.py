"""The mirror's channel as it is on the wire, in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.mirror_side import content, file, parts_of, tree_of
from tests.unit.mux.rig import ends, soon, until
from tunnelkit.agent.mirror import batch_channel
from tunnelkit.agent.mirror.service import MirrorService
from tunnelkit.mirror.agent import channel as mirror_channel
from tunnelkit.mirror.agent.channel import MirrorChannel, ParcelReader
from tunnelkit.mux import parcels as parcel_limits
from tunnelkit.mux.channel import Channel
from tunnelkit.mux.parcels import encode


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
            "instance": f"{files.instance}({state.st_dev}, {state.st_ino})",
            "nests": True,
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


class OneAgent:
    """The agent at the other end of a pair, as the mirror sees it."""

    is_node = is_up = True

    def __init__(self, pair: Any) -> None:
        self._pair = pair

    def open(self, header: dict[str, Any]) -> Channel:
        channel: Channel = self._pair.client.mux.open(header)
        return channel


@pytest.mark.parametrize("there", [b"x", b"other"])
async def test_results_of_many_paths_come_in_parts(
    root: Path, monkeypatch: pytest.MonkeyPatch, there: bytes
) -> None:
    """All of a tree that was there already: one header can't hold them."""
    monkeypatch.setattr(batch_channel, "_ANSWER_PATHS", 20)
    monkeypatch.setattr(mirror_channel, "_PART_PATHS", 10)
    monkeypatch.setattr(parcel_limits, "MAX_HEADER_BYTES", 2000)
    names = [f"module_{number}.py" for number in range(110)]
    for name in names:
        (root / name).write_bytes(there)
    proven: dict[str, str] = {}

    async def on_proof(digests: Any, stamps: Any, differ: Any) -> None:
        proven.update(stamps)

    async with served(root) as (client, _, pair):
        await client.answer()
        agent: Any = OneAgent(pair)
        live = await MirrorChannel.open(agent, str(root), None, host="node", on_proof=on_proof)
        number, data = live.begin("20261121T181500Z")
        for name in names:
            header, content_ = file(name, b"x", unlike="backup")
            data += encode(header, content_)
        await live.commit(number, data, paths=len(names))
        answer = await soon(live.answer(number, files=len(names), size_bytes=len(names)))
        live.recorded(number, {})
        await soon(live.proofs_in())
        await live.close()
    state = "same" if there == b"x" else "replaced"
    assert {path: what for path, (what, _) in answer.results.items()} == dict.fromkeys(names, state)
    assert (answer.replaced_dir is None) == (state == "same")
    assert sorted(proven) == sorted(names)


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
