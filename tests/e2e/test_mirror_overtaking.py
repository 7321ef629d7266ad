"""Saves overtake a big file, whether it goes by rsync or over the wire to the agent."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.big_transfer import BigTransfer, comes, ends, random_file, settled, under_way
from tests.support.big_transfer import big_rig as big_rig
from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, needs_rsync, tree, until
from tests.support.mirror_sshd import Sshd
from tunnelkit.errors import ConnectionFailed, MirrorError
from tunnelkit.mirror.agent import big_file
from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.api import MirrorHalted, MirrorState, PassRecord
from tunnelkit.mirror.passes import local_changes
from tunnelkit.mirror.passes.overtaking import Overtaking, _Ready
from tunnelkit.mirror.passes.remote_doubts import _DIFFER_S
from tunnelkit.mirror.transfer.base import TransferResult
from tunnelkit.mirror.transfer.rsync import Rsync

pytestmark = needs_rsync


async def test_saves_come_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[PassRecord] = []
    mirror, big = await under_way(rig, monkeypatch, on_batch=records.append)
    for number in range(2, 6):
        rig.write("a.py", f"{number}\n")
        await comes(rig, "a.py", f"{number}\n")
    assert [record.paths for record in records[-4:]] == [("a.py",)] * 4
    rig.write("new/deep/c.py", "c\n")
    await comes(rig, "new/deep/c.py", "c\n")
    (rig.local / "old.py").unlink()
    await until(lambda: not (rig.far / "old.py").exists(), "the delete")
    (rig.local / "sub" / "b.py").rename(rig.local / "moved.py")
    await comes(rig, "moved.py", "1\n")
    await until(lambda: not (rig.far / "sub" / "b.py").exists(), "the rename")
    await until(lambda: mirror.status().pending_paths == ("model.bin",), "the rest of the status")
    assert mirror.status().state is MirrorState.PENDING
    await ends(rig, mirror, big)


async def test_what_belongs_to_the_big_file_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own next save, a second big one, and deletes with it: it may be a renamed file."""
    mirror, big = await under_way(rig, monkeypatch)
    random_file(rig.local / "model.bin", 2)
    random_file(rig.local / "second.bin", 3)
    (rig.local / "old.py").unlink()
    rig.write("a.py", "2\n")
    await comes(rig, "a.py", "2\n")
    assert (rig.far / "old.py").exists()
    assert not (rig.far / "second.bin").exists()
    await ends(rig, mirror, big)


def git(rig: Rig, *words: str) -> None:
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *name, *words], cwd=rig.local, check=True, capture_output=True)


async def test_git_checks_out_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.write("a.py", "1\n")
    git(rig, "init", "-b", "main")
    git(rig, "add", "a.py")
    git(rig, "commit", "-m", "one")
    git(rig, "checkout", "-b", "other")
    for number in range(30):
        rig.write(f"many/{number}.py", f"{number}\n")
    rig.write("a.py", "other\n")
    git(rig, "add", ".")
    git(rig, "commit", "-m", "two")
    git(rig, "checkout", "main")
    mirror, big = await under_way(rig, monkeypatch)
    git(rig, "checkout", "other")
    await comes(rig, "many/29.py", "29\n")
    await comes(rig, "a.py", "other\n")
    await ends(rig, mirror, big)


async def test_a_directory_that_is_no_longer_ignored_is_watched(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.write(".gitignore", "gen/\n")
    rig.write("gen/old.py", "1\n")
    mirror, big = await under_way(rig, monkeypatch)
    rig.write(".gitignore", "")
    await comes(rig, "gen/old.py", "1\n")
    rig.write("gen/new.py", "1\n")
    await comes(rig, "gen/new.py", "1\n")
    big.may_end.set()
    await mirror.barrier(60)
    rig.write("gen/late.py", "1\n")
    await mirror.barrier(60)
    assert rig.equal()


async def test_a_mass_deletion_halts_only_itself(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        rig.write(f"data/{number}.txt", f"{number}\n")
    mirror, big = await under_way(rig, monkeypatch)
    for path in (rig.local / "data").iterdir():
        path.unlink()
    rig.write("a.py", "2\n")
    big.may_end.set()
    await until(lambda: mirror.status().state is MirrorState.HALTED, "it asks")
    assert (rig.far / "model.bin").read_bytes() == (rig.local / "model.bin").read_bytes()
    assert len(list((rig.far / "data").iterdir())) == 300
    with pytest.raises(MirrorHalted):
        await mirror.barrier(60)
    await mirror.barrier(60, allow_deletes=True)
    assert rig.equal()


async def test_many_files_that_a_checkout_moves_are_no_deletes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their new names wait for the deletes: the next pass sees that they were moved."""
    for number in range(250):
        rig.write(f"pkg/{number}.py", f"{number}\n")
    git(rig, "init", "-b", "main")
    git(rig, "add", "pkg")
    git(rig, "commit", "-m", "one")
    git(rig, "checkout", "-b", "other")
    git(rig, "mv", "pkg", "lib")
    git(rig, "commit", "-m", "two")
    git(rig, "checkout", "main")
    mirror, big = await under_way(rig, monkeypatch)
    send, tried = Overtaking._send, asyncio.Event()

    async def noted_send(overtaking: Overtaking, ready: _Ready) -> None:
        await send(overtaking, ready)
        if "pkg/249.py" in ready.late:
            tried.set()

    monkeypatch.setattr(Overtaking, "_send", noted_send)
    git(rig, "checkout", "other")
    await asyncio.wait_for(tried.wait(), 60)
    await ends(rig, mirror, big)


async def test_somebodys_edit_there_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, big = await under_way(rig, monkeypatch)
    rig.write("a.py", "theirs, and longer\n", far=True)
    rig.write("a.py", "2\n")
    rig.write("sub/b.py", "2\n")
    await comes(rig, "sub/b.py", "2\n")
    big.may_end.set()
    await until(lambda: mirror.status().conflicts == ("a.py",), "the conflict is seen")
    assert (rig.far / "a.py").read_text() == "theirs, and longer\n"
    with pytest.raises(MirrorError, match=r"a\.py"):
        await mirror.barrier(60)
    await mirror.resolve([str(rig.local / "a.py")], theirs=False)
    await mirror.barrier(60)
    assert (rig.far / "a.py").read_text() == "2\n"


async def test_the_link_is_lost_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the wire both go on. rsync has a connection of its own, and goes on alone."""
    mirror, big = await under_way(rig, monkeypatch)
    assert rig.node is not None
    rig.node.reachable = False
    rig.node.client.mux.detach("the test has cut it")
    rig.write("a.py", "2\n")
    await until(lambda: rig.node is not None and not rig.node.host.is_up, "the loss is seen")
    rig.node.reachable = True
    await comes(rig, "a.py", "2\n")
    await ends(rig, mirror, big)


async def test_the_agent_dies_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, big = await under_way(rig, monkeypatch)
    rig.write("a.py", "2\n")
    await comes(rig, "a.py", "2\n")
    assert rig.node is not None
    monkeypatch.setattr("tunnelkit.mirror.passes.agent_pass._OUTAGE_S", 0.5)
    await rig.node.kill()
    rig.write("a.py", "3\n")
    big.may_end.set()
    await mirror.resync(60)  # a barrier waits for a node
    assert tree(rig.far) == tree(rig.local)


async def test_a_doubt_that_comes_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other content was read back than was sent: all is verified once the big file is there."""
    mirror, big = await under_way(rig, monkeypatch)
    assert mirror._syncer is not None
    doubts = mirror._syncer._doubts
    rig.write("a.py", "2\n")
    await comes(rig, "a.py", "2\n")
    rig.write("a.py", "theirs, and longer\n", far=True)
    doubts.differ()
    await asyncio.sleep(2 * _DIFFER_S)  # its timer has called for a pass
    big.may_end.set()
    await until(lambda: mirror.status().conflicts == ("a.py",), "the edit there is seen")


async def test_the_mirror_stops_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends at once, and the next one sends the rest."""
    mirror, big = await under_way(rig, monkeypatch)
    rig.write("a.py", "2\n")
    await comes(rig, "a.py", "2\n")
    rig.write("sub/b.py", "3\n")
    await asyncio.wait_for(mirror.stop(), 10)
    big.may_end.set()
    again = await rig.started()
    await again.barrier(60)
    assert tree(rig.far) == tree(rig.local)


async def test_saves_come_while_the_big_file_is_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest comes first, and takes long on a slow disk."""
    reads, may_end = threading.Event(), threading.Event()

    def held(digest: Callable[..., str]) -> Callable[..., str]:
        def slow(*words: object) -> str:
            reads.set()
            may_end.wait(60)
            return digest(*words)

        return slow

    mirror = await settled(rig)
    monkeypatch.setattr(big_file, "_digest", held(big_file._digest))
    monkeypatch.setattr(local_changes, "digest", held(local_changes.digest))
    random_file(rig.local / "model.bin")
    await until(reads.is_set, "the big file is read")
    try:
        rig.write("a.py", "2\n")
        await comes(rig, "a.py", "2\n")
        assert not (rig.far / "model.bin").exists()
    finally:
        may_end.set()
    await mirror.barrier(60)
    assert rig.equal()


async def test_what_came_before_a_broken_transfer_is_told_once(
    live_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[PassRecord] = []
    warnings: list[str] = []
    mirror = live_rig.mirror(on_batch=records.append, on_warning=warnings.append)
    await mirror.start()
    await mirror.barrier(60)
    push = Rsync.push

    async def broken(*_: object, **__: object) -> TransferResult:
        raise ConnectionFailed("rsync broke off", transient=True, hint="try again")

    monkeypatch.setattr(Rsync, "push", broken)
    live_rig.write("notes.py", "theirs\n", far=True)
    random_file(live_rig.local / "model.bin")
    live_rig.write("notes.py", "mine\n")
    live_rig.write("main.py", "1\n")
    waiting = asyncio.create_task(mirror.barrier(60))
    await until(lambda: mirror.status().state is MirrorState.STALE, "it breaks off")
    await until(lambda: live_rig.seen[-1].pending_paths == ("model.bin",), "the rest is left")
    reported = [path for record in records for path in record.paths]
    assert sorted(reported) == ["main.py", "notes.py"]
    (warning,) = warnings
    assert warning.startswith("notes.py: other content was there, and is replaced; ")
    monkeypatch.setattr(Rsync, "push", push)
    report = await waiting
    assert [record.paths for record in records[-1:]] == [("model.bin",)]
    assert len(warnings) == 1
    assert (report.sent, report.replaced) == (3, ("notes.py",))


class Batches:
    """The numbers of the batches that begin and end, in their order; an end is negative."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[int] = []
        begin, commit = MirrorChannel.begin, MirrorChannel.commit

        def noted_begin(live: MirrorChannel, replaced_stamp: str) -> tuple[int, bytes]:
            number, data = begin(live, replaced_stamp)
            self.order.append(number)
            return number, data

        async def noted_commit(live: MirrorChannel, batch: int, rest: bytes, **more: float) -> None:
            self.order.append(-batch)
            await commit(live, batch, rest, **more)

        monkeypatch.setattr(MirrorChannel, "begin", noted_begin)
        monkeypatch.setattr(MirrorChannel, "commit", noted_commit)

    def nested(self) -> bool:
        """True if one has begun within another."""
        return any(one > 0 and two > 0 for one, two in pairwise(self.order))


@pytest.mark.parametrize("nests", [True, False])
async def test_only_an_agent_that_can_gets_a_batch_within_another(
    live_rig: Rig, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nests: bool
) -> None:
    """One of an earlier version can't: saves wait, as they did."""
    with far_path(sshd, tmp_path / "bin", without=("rsync",)):
        mirror = await settled(live_rig)
        assert mirror._syncer is not None
        live = await mirror._syncer.channels.live()
        assert live is not None and live.nests
        live.nests = nests
        batches, big = Batches(monkeypatch), BigTransfer(monkeypatch)
        random_file(live_rig.local / "model.bin")
        await asyncio.wait_for(big.began.wait(), 60)
        live_rig.write("a.py", "2\n")
        if nests:
            await comes(live_rig, "a.py", "2\n")
        else:
            assert mirror._worker is not None
            await until(mirror._worker._wake.is_set, "the save is seen")
        await ends(live_rig, mirror, big)
        assert batches.nested() == nests
