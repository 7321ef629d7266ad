"""A big file without rsync: over the wire to the agent, and on where it was after a lost link."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, needs_rsync, tree, until
from tests.support.mirror_sshd import Sshd, descendants
from tunnelkit.errors import ConnectionFailed, MirrorError
from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.api import MirrorState
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.transfer.big_fetch import BigFetch

pytestmark = needs_rsync  # and its sshd

SIZE_BYTES = 16 << 20


@pytest.fixture
async def rig(live_rig: Rig, sshd: Sshd, tmp_path: Path) -> AsyncIterator[Rig]:
    """With an agent on the node; the login host has no rsync."""
    with far_path(sshd, tmp_path / "bin", without=("rsync",)):
        yield live_rig


class Sent:
    """Counts what goes over the mirrors' channels; `at(bytes)` loses the link there, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rig: Rig) -> None:
        self.size_bytes = 0
        self.lost = asyncio.Event()
        self._at_bytes = 1 << 60
        write = MirrorChannel.write

        async def counted(live: MirrorChannel, data: bytes, **more: float) -> None:
            self.size_bytes += len(data)
            if self.size_bytes > self._at_bytes and not self.lost.is_set():
                assert rig.node is not None
                rig.node.reachable = False
                rig.node.client.mux.detach("the test has cut it")
                self.lost.set()
            await write(live, data, **more)

        monkeypatch.setattr(MirrorChannel, "write", counted)

    def lose_at(self, size_bytes: int) -> None:
        self._at_bytes = size_bytes


def random_file(path: Path, seed: int, size_bytes: int = SIZE_BYTES) -> None:
    path.write_bytes(random.Random(seed).randbytes(size_bytes))


async def test_it_goes_on_where_it_was(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = await rig.started()
    sent = Sent(monkeypatch, rig)
    sent.lose_at(SIZE_BYTES // 2)
    random_file(rig.local / "model.bin", 1)
    await asyncio.wait_for(sent.lost.wait(), 60)
    assert rig.node is not None
    assert not (rig.far / "model.bin").exists()
    rig.node.reachable = True
    await mirror.barrier(60)
    assert mirror.status().state is MirrorState.IN_SYNC
    assert rig.equal()
    # Once, and no more: what had arrived before the loss was kept.
    assert SIZE_BYTES < sent.size_bytes < SIZE_BYTES + (1 << 20)


async def test_a_link_that_stays_away_ends_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it begins again, and nothing of the first attempt is left."""
    monkeypatch.setattr("tunnelkit.mirror.passes.agent_pass._OUTAGE_S", 0.5)
    mirror = await rig.started()
    sent = Sent(monkeypatch, rig)
    sent.lose_at(SIZE_BYTES // 2)
    random_file(rig.local / "model.bin", 2)
    await asyncio.wait_for(sent.lost.wait(), 60)
    await until(lambda: mirror.status().state is MirrorState.STALE, "the pass gives up")
    assert rig.node is not None
    rig.node.reachable = True
    await mirror.barrier(60)
    assert tree(rig.far) == tree(rig.local)


async def test_it_is_replaced_touched_and_taken_away(rig: Rig) -> None:
    """Beside small files, with its mode; and an edit of somebody else's there stays."""
    random_file(rig.local / "model.bin", 3)
    rig.write("a.py")
    mirror = await rig.started()
    await mirror.barrier(60)
    assert rig.equal()
    random_file(rig.local / "model.bin", 4)
    rig.write("a.py", "2\n")
    await mirror.barrier(60)
    assert rig.equal()
    (rig.local / "model.bin").chmod(0o400)
    os.utime(rig.local / "model.bin", (1000, 1000))
    await mirror.barrier(60)
    assert rig.equal()
    (rig.local / "model.bin").chmod(0o600)
    await mirror.barrier(60)
    rig.write("model.bin", "theirs\n", far=True)
    random_file(rig.local / "model.bin", 5)
    await until(lambda: mirror.status().conflicts != (), "the conflict is seen")
    assert (rig.far / "model.bin").read_text() == "theirs\n"
    await mirror.resolve([str(rig.local / "model.bin")], theirs=False)
    await mirror.barrier(60)
    (rig.local / "model.bin").unlink()
    await mirror.barrier(60)
    assert {name.decode() for name in tree(rig.far)} >= {"a.py"}
    assert not (rig.far / "model.bin").exists()


class Received:
    """Counts what a pull brings; `break_at(bytes)` kills its ssh there, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: list[int] = []
        self._at_bytes = 1 << 60
        come = BigFetch._come

        def counted(fetch: BigFetch, count: int) -> None:
            self.counts.append(count)
            if sum(self.counts) > self._at_bytes:
                self._at_bytes = 1 << 60
                for pid in descendants(os.getpid()):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if words.startswith(b"ssh\0") and b"tail -c" in words:
                        os.kill(pid, signal.SIGKILL)
            come(fetch, count)

        monkeypatch.setattr(BigFetch, "_come", counted)

    def break_at(self, size_bytes: int) -> None:
        self._at_bytes = size_bytes


async def broken_pull(rig: Rig, mirror: Mirror, received: Received) -> Path:
    """A pull of a new output that breaks off in the middle; its part."""
    (rig.far / "out").mkdir()
    random_file(rig.far / "out" / "result.bin", 6)
    received.break_at(SIZE_BYTES // 2)
    with pytest.raises(ConnectionFailed, match="broke off"):
        await mirror.pull([str(rig.local / "out")])
    assert not (rig.local / "out").exists()
    (part,) = (rig.local / ".tk-replaced" / "partial").iterdir()
    assert SIZE_BYTES // 2 <= part.stat().st_size < SIZE_BYTES
    return part


async def test_a_pull_goes_on_where_it_was(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    received = Received(monkeypatch)
    mirror = await rig.started(exclude=("out/",))
    had_bytes = (await broken_pull(rig, mirror, received)).stat().st_size
    received.counts.clear()
    (rig.far / "out" / "result.bin").chmod(0o700)
    rig.write("out/small.txt", far=True)
    report = await mirror.pull([str(rig.local / "out")])
    assert report.pulled == ("out/result.bin", "out/small.txt")
    assert (received.counts[0], sum(received.counts)) == (had_bytes, SIZE_BYTES)
    here, there = rig.local / "out" / "result.bin", rig.far / "out" / "result.bin"
    assert here.read_bytes() == there.read_bytes()
    assert here.stat().st_mode & 0o777 == 0o700
    assert int(here.stat().st_mtime) == int(there.stat().st_mtime)
    assert not (rig.local / ".tk-replaced").exists()
    again = await mirror.pull([str(rig.local / "out")])
    assert (again.pulled, again.kept) == ((), ("out/result.bin", "out/small.txt"))


async def test_a_part_of_other_content_is_not_used(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with the same size and time but other content: the digests differ, and the next
    pull begins again."""
    received = Received(monkeypatch)
    mirror = await rig.started()
    part = await broken_pull(rig, mirror, received)
    there = rig.far / "out" / "result.bin"
    times = (there.stat().st_atime_ns, there.stat().st_mtime_ns)
    random_file(there, 7)
    os.utime(there, ns=times)
    with pytest.raises(MirrorError) as caught:
        await mirror.pull([str(rig.local / "out")])
    assert "changed while it was fetched" in (caught.value.cause or "")
    assert not part.exists()
    await mirror.pull([str(rig.local / "out")])
    assert (rig.local / "out" / "result.bin").read_bytes() == there.read_bytes()
