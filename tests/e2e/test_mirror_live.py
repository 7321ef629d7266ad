"""Files over the wire: what only that way can do."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mirror_rig import Node, Rig, needs_rsync, tree, until
from tunnelkit.errors import ConnectionFailed, MirrorConflict, MirrorError, TimeoutExpired
from tunnelkit.mirror.agent.channel import MirrorChannel, NotThere, OnProof
from tunnelkit.mirror.api import FileAgent, MirrorState, PassRecord

pytestmark = needs_rsync


def parts(root: Path) -> list[str]:
    return [name for _, dirs, names in os.walk(root) for name in [*dirs, *names] if "part" in name]


def equal(rig: Rig) -> bool:
    mine = {path: what for path, what in tree(rig.local).items() if not path.startswith(b".git")}
    return mine == tree(rig.far)


def grow_old(*paths: Path) -> None:
    """Wait until they look like files that nobody writes any more."""
    deadline = time.monotonic() + 5.0
    newest = max(path.stat().st_ctime_ns for path in paths)
    while time.time_ns() < newest + 150_000_000 and time.monotonic() < deadline:
        time.sleep(0.01)


async def test_another_directory_in_the_roots_place_has_proved_nothing(live_rig: Rig) -> None:
    """As after `mv proj proj.old; mkdir proj`, or a fresh clone on the cluster."""
    rig = live_rig
    names = ("a.py", "b.py", "c.py")
    for name in names:
        rig.write(name, f"{name}\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    for edit in (False, True):
        rig.far.rename(rig.far.with_name(f"far.old.{edit}"))
        rig.far.mkdir()
        (rig.far / "b.py").write_text("OLD code\n")
        if edit:
            rig.write("a.py", "edited\n")
        with pytest.raises(MirrorConflict, match=r"b\.py"):
            await mirror.barrier(20)
        assert (rig.far / "a.py").read_text() == (rig.local / "a.py").read_text()
        assert (rig.far / "c.py").read_text() == "c.py\n"
        await mirror.resolve([str(rig.local / "b.py")], theirs=False)
        await mirror.barrier(20)
        assert (rig.far / "b.py").read_text() == "b.py\n"


@pytest.mark.parametrize("edit", [False, True])
async def test_a_root_that_is_gone_is_made_again(live_rig: Rig, edit: bool) -> None:
    """As after `rm -rf proj` or `mv proj proj.old` there."""
    rig = live_rig
    for name in ("a.py", "d/b.py"):
        rig.write(name, f"{name}\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    for number in range(2):
        rig.far.rename(rig.far.with_name(f"far.old.{number}"))
        if edit:
            rig.write("a.py", f"edited {number}\n")
        await mirror.barrier(20)
        assert rig.equal()


async def test_a_root_that_cant_be_made_again_is_an_error(live_rig: Rig) -> None:
    rig = live_rig
    rig.write("a.py", "a\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    rig.far.rename(rig.far.with_name("far.old"))
    rig.far.write_text("a file in its place\n")
    for _ in range(2):
        with pytest.raises(MirrorError) as caught:
            await mirror.barrier(20)
        assert caught.value.hint


async def test_a_save_asks_the_login_host_nothing(live_rig: Rig) -> None:
    rig = live_rig
    rig.write("a.py", "1\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    before = rig.remote.commands
    rig.write("a.py", "2\n")
    await mirror.barrier(20)
    assert (rig.far / "a.py").read_text() == "2\n"
    assert (await mirror.barrier(20)).proven == 0, "read back already"
    assert rig.remote.commands == before
    assert rig.equal()


async def test_what_git_has_written_is_staged_and_appears_at_once(live_rig: Rig) -> None:
    rig = live_rig
    told: list[PassRecord] = []
    (rig.local / ".git").mkdir()
    rig.write("main.py", "old\n")
    rig.write("pkg/a.py", "old\n")
    mirror = await rig.started(on_batch=told.append)
    await mirror.barrier(20)
    told.clear()
    lock = rig.local / ".git/index.lock"
    lock.touch()
    rig.write("main.py", "new\n")
    for number in range(50):
        rig.write(f"fresh/m{number}.py", "new\n")
    await until(lambda: len(parts(rig.far)) > 1, "the staging")
    assert (rig.far / "main.py").read_text() == "old\n"
    assert not (rig.far / "fresh").exists()
    # Staged, and then another: the last one counts. Staged, and then gone.
    rig.write("main.py", "newer\n")
    (rig.local / "fresh/m7.py").unlink()
    lock.unlink()
    await until(lambda: bool(told), "the generation")
    await mirror.barrier(20)
    assert equal(rig)
    assert (rig.far / "main.py").read_text() == "newer\n"
    assert [batch.files for batch in told] == [50]
    assert parts(rig.far) == []


async def test_staged_files_are_not_sent_again(live_rig: Rig) -> None:
    rig = live_rig
    (rig.local / ".git").mkdir()
    rig.write("pkg/old.py", "old\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    lock = rig.local / ".git/index.lock"
    lock.touch()
    written = [rig.write(f"pkg/m{number}.py", "new\n") for number in range(30)]
    await until(lambda: len(parts(rig.far)) == 30, "the staging of all")
    grow_old(*written)
    inodes = {path.name: os.lstat(path).st_ino for path in (rig.far / "pkg").iterdir()}
    lock.unlink()
    await mirror.barrier(20)
    assert equal(rig)
    now = {os.lstat(path).st_ino for path in (rig.far / "pkg").iterdir()}
    staged = {inode for name, inode in inodes.items() if "part" in name}
    assert staged <= now, "what was staged is what was published"


async def test_what_a_killed_agent_has_staged_goes_from_a_directory_that_was_moved_away(
    live_rig: Rig, tmp_path: Path
) -> None:
    rig = live_rig
    (rig.local / ".git").mkdir()
    rig.write("pkg/old.py")
    for number in range(10):
        rig.write(f"m{number}.py")
    mirror = await rig.started()
    await mirror.barrier(20)
    output = rig.write("pkg/output.bin", "the job's\n", far=True)
    (rig.local / ".git/index.lock").touch()
    rig.write("at the top.py")
    for number in range(5):
        rig.write(f"pkg/sub/m{number}.py")
    await until(lambda: len(list((rig.far / "pkg").glob(".tk-part-*/*"))) == 5, "the staging")
    await until(lambda: len(list(rig.far.glob(".tk-part-*"))) == 1, "the staging at the top")
    assert rig.node is not None
    await rig.node.kill()
    await until(lambda: rig.file_agent() is None, "the loss")
    (rig.local / "pkg").rename(tmp_path / "elsewhere")
    (rig.local / "at the top.py").unlink()
    (rig.local / ".git/index.lock").unlink()
    # By rsync, which knows nothing of what was staged.
    await until(lambda: not (rig.far / "pkg/old.py").exists(), "the deletion")
    await until(lambda: mirror.status().state is MirrorState.IN_SYNC, "the end of that")
    # What was left there is known to another agent of another session.
    await mirror.stop()
    assert len(parts(rig.far)) == 2
    rig.node = Node(tmp_path / "agent")
    try:
        await rig.node.start()
        mirror = await rig.started()
        await mirror.barrier(20)
        assert parts(rig.far) == []
        assert output.read_text() == "the job's\n"
    finally:
        await rig.node.stop()


@pytest.mark.parametrize(
    "failure", [NotThere("no root"), ConnectionFailed("it hangs")], ids=["no", "silence"]
)
async def test_an_agent_s_refusal_is_not_the_next_one_s(
    live_rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    rig = live_rig
    rig.write("a.py")
    mirror = await rig.started()
    await mirror.barrier(20)
    first, opened = rig.node, MirrorChannel.open.__func__  # type: ignore[attr-defined]
    assert first is not None
    left = rig.write(".tk-part-0123456789ab-1", "a killed one's\n", far=True)

    async def open_or_not(cls: type, agent: FileAgent, *args: object, **more: object) -> object:
        if agent is first.host:
            raise failure
        return await opened(cls, agent, *args, **more)

    monkeypatch.setattr(MirrorChannel, "open", classmethod(open_or_not))
    assert mirror._syncer is not None
    await mirror._syncer.close()
    rig.write("a.py", "by rsync\n")
    await mirror.barrier(20)
    assert (rig.far / "a.py").read_text() == "by rsync\n" and left.exists()
    rig.node = Node(tmp_path / "agent")
    try:
        await rig.node.start()
        rig.write("a.py", "over the wire\n")
        before = rig.remote.commands
        await mirror.barrier(20)
        assert rig.equal(), "the new one has looked at all there is first, and cleaned up"
        assert rig.remote.commands == before
    finally:
        await rig.node.stop()
        rig.node = first


async def _broken(live: MirrorChannel, batch: int, rest: bytes, **more: float) -> None:
    raise ConnectionFailed("cut", transient=True)


async def test_a_change_of_kind_that_broke_off_twice_is_made(
    live_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = live_rig
    source = rig.write("name", "1\n")
    mirror = await rig.started()
    await mirror.barrier(20)

    with monkeypatch.context() as patch:
        patch.setattr(MirrorChannel, "commit", _broken)
        source.write_text("2\n")
        with pytest.raises(TimeoutExpired):
            await mirror.barrier(0.5)
        source.unlink()
        rig.write("name/inside.py", "x\n")
        with pytest.raises(TimeoutExpired):
            await mirror.barrier(0.5)
    await mirror.barrier(40)
    assert rig.equal()


async def test_a_rename_that_broke_off_is_no_mass_deletion(
    live_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new paths are on record already when they are sent again."""
    rig = live_rig
    for number in range(250):
        rig.write(f"old/f{number:03}.py", f"{number}\n")
    mirror = await rig.started()
    await mirror.barrier(40)

    with monkeypatch.context() as patch:
        patch.setattr(MirrorChannel, "commit", _broken)
        (rig.local / "old").rename(rig.local / "new")
        with pytest.raises(TimeoutExpired):
            await mirror.barrier(1.0)
    await mirror.barrier(40)
    assert rig.equal()


async def test_an_agent_that_is_gone_is_done_without(live_rig: Rig) -> None:
    rig = live_rig
    assert rig.node is not None
    rig.write("a.py", "1\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    await rig.node.kill()
    await until(lambda: rig.file_agent() is None, "the loss")
    rig.write("a.py", "2\n")
    rig.write("new/b.py", "b\n")
    await until(rig.equal, "rsync has taken over")
    # Whether the node sees it nobody knows: that is no proof.
    with pytest.raises(TimeoutExpired):
        await mirror.barrier(1.0)
    assert mirror.status().state is MirrorState.IN_SYNC


def meddle(rig: Rig, path: str, work: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """Have somebody there at work between the next publication of that path and its reading
    back, and the agent tell of it."""
    take = MirrorChannel._take
    to_do = [work]

    async def late(live: MirrorChannel, header: dict[str, Any], on_proof: OnProof) -> None:
        if path in header.get("proof", ()) and to_do:
            to_do.pop()()
            header["proof"].pop(path)
            header["differ"][path] = "content" if (rig.far / path).exists() else "absent"
        await take(live, header, on_proof)

    patch.setattr(MirrorChannel, "_take", late)


async def test_an_edit_in_the_moment_of_the_publication_is_told(
    live_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = live_rig
    rig.write("a.py", "1\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    meddle(rig, "a.py", lambda: (rig.far / "a.py").write_text("somebody's\n"), monkeypatch)
    rig.write("a.py", "2\n")
    # Nothing happens here any more, and nobody asks.
    await until(lambda: mirror.status().state is MirrorState.CONFLICT, "the conflict")
    assert mirror.status().conflicts == ("a.py",)
    assert (rig.far / "a.py").read_text() == "somebody's\n"


async def test_a_directory_moved_away_in_that_moment_comes_back(
    live_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = live_rig
    rig.write("pkg/a.py", "1\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    away = rig.far / "elsewhere"
    meddle(rig, "pkg/a.py", lambda: (rig.far / "pkg").rename(away), monkeypatch)
    rig.write("pkg/a.py", "2\n")
    await until(lambda: away.exists() and (rig.far / "pkg/a.py").exists(), "the file")
    await mirror.barrier(20)
    assert (rig.far / "pkg/a.py").read_text() == "2\n"
    assert (away / "a.py").exists(), "what somebody has is left to him"


async def test_a_first_copy_is_read_while_an_agent_is_waited_for(live_rig: Rig) -> None:
    rig = live_rig
    for number in range(400):
        rig.write(f"pkg{number % 7}/m{number}.py", f"{number}\n")
    there, asked = False, 0
    reading = asyncio.Event()

    async def soon() -> None:
        nonlocal there, asked
        asked += 1
        await reading.wait()
        there = True

    starting = asyncio.create_task(
        rig.started(agent=lambda: rig.file_agent() if there else None, agent_soon=soon)
    )
    await until(lambda: asked > 1, "both, who hurries it and who waits for it")
    # What was read may be old by now, and nobody has seen these events yet.
    rig.write("pkg1/m1.py", "newer\n")
    rig.write("pkg1/more.py", "1\n")
    (rig.local / "pkg2/m2.py").unlink()
    reading.set()
    mirror = await starting
    await mirror.barrier(20)
    assert rig.equal()
    assert mirror.status().state is MirrorState.IN_SYNC
    assert mirror.status().files == 400


async def test_a_directory_that_was_there_before_goes_in_the_pass_of_a_new_file(
    live_rig: Rig,
) -> None:
    rig = live_rig
    rig.write("one.py")
    mirror = await rig.started()
    (rig.far / "shared").mkdir()
    (rig.local / "shared").mkdir()
    await mirror.barrier(20)
    # The agent is asked for nothing: the directory on the cluster is not tk's to remove.
    (rig.local / "shared").rmdir()
    rig.write("two.py")
    await mirror.barrier(20)
    assert (rig.far / "two.py").exists()
    assert (rig.far / "shared").is_dir()
