"""What the mirror never does: delete or overwrite what is not its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.mirror_rig import Rig, RigHost, needs_rsync, tree, until
from tunnelkit.errors import MirrorError
from tunnelkit.mirror import push_worker
from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.api import MirrorHalted, MirrorState
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.passes import prefetch
from tunnelkit.mirror.tree.ignore import REPLACED_DIR
from tunnelkit.mirror.watch.coalescer import DirtyPaths
from tunnelkit.model import MirrorSpec

pytestmark = needs_rsync


async def test_deletes_only_what_it_sent(rig: Rig) -> None:
    for path in ("a.py", "gone/mine.txt", "gone/deeper/mine.txt", "gone2/mine.txt"):
        rig.write(path)
    mirror = await rig.started()
    rig.write("output.bin", far=True)
    rig.write("gone/output.bin", far=True)
    rig.write("gone/empty/output.bin", far=True).unlink()
    shutil.rmtree(rig.local / "gone")
    shutil.rmtree(rig.local / "gone2")
    report = await mirror.barrier(20)
    assert report.deleted == 3
    left = {os.fsdecode(path) for path in tree(rig.far)}
    assert left == {"a.py", "output.bin", "gone", "gone/output.bin", "gone/empty"}


async def test_a_file_changed_there_is_not_deleted(rig: Rig) -> None:
    rig.write("log.txt", "start\n")
    rig.write("main.py")
    mirror = await rig.started()
    rig.write("log.txt", "start\nwritten by the job\n", far=True)
    (rig.local / "log.txt").unlink()
    report = await mirror.barrier(20)
    assert report.kept == ("log.txt",)
    assert "job" in (rig.far / "log.txt").read_text()


async def test_what_was_there_before_is_set_aside(rig: Rig) -> None:
    rig.write("main.py", "laptop\n")
    rig.write("same.py", "same\n")
    rig.write("main.py", "cluster\n", far=True)
    rig.write("same.py", "same\n", far=True)
    rig.write("dir/results.csv", "precious\n", far=True)
    mirror = await rig.started()
    await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "laptop\n"
    (kept,) = rig.far.glob(f"{REPLACED_DIR}/*/main.py")
    assert kept.read_text() == "cluster\n"
    assert len([path for path in rig.far.glob(f"{REPLACED_DIR}/*/**/*") if path.is_file()]) == 1
    assert (rig.far / "dir/results.csv").read_text() == "precious\n"


async def test_a_symlink_on_the_cluster_is_never_followed(rig: Rig) -> None:
    outside = rig.home / "outside"
    outside.mkdir()
    rig.write("data/new.txt")
    rig.write("ours/a.txt")
    rig.write("main.py")
    rig.far.mkdir(parents=True)
    (rig.far / "data").symlink_to(outside)
    mirror = await rig.started()
    assert mirror.status().state is MirrorState.PENDING
    assert "data/new.txt" in mirror.status().pending_paths
    assert (rig.far / "main.py").exists()
    with pytest.raises(MirrorError, match=r"data/new\.txt") as caught:
        await mirror.barrier(20)
    assert "symlink" in (caught.value.cause or "")
    # one that took the place of a directory which we made
    (rig.far / "ours").rename(outside / "moved")
    (rig.far / "ours").symlink_to(outside / "moved")
    shutil.rmtree(rig.local / "data")
    (rig.local / "ours/a.txt").unlink()
    await mirror.barrier(20)
    assert list(outside.rglob("*.txt")) == [outside / "moved/a.txt"]
    assert (rig.far / "data").is_symlink() and (rig.far / "ours").is_symlink()


async def test_emptied_root_halts(rig: Rig) -> None:
    for number in range(5):
        rig.write(f"{number}.py")
    mirror = await rig.started()
    for path in rig.local.iterdir():
        path.unlink()
    await until(lambda: mirror.status().state is MirrorState.HALTED, "the halt")
    with pytest.raises(MirrorHalted, match="empty"):
        await mirror.barrier(20)
    assert len(list(rig.far.iterdir())) == 5
    rig.write("0.py")
    await until(lambda: mirror.status().state is not MirrorState.HALTED, "the end of the halt")
    (rig.local / "0.py").unlink()
    assert (await mirror.barrier(20, allow_deletes=True)).deleted > 0
    assert list(rig.far.iterdir()) == []


async def test_vanished_root_halts_even_when_confirmed(rig: Rig) -> None:
    rig.write("main.py")
    mirror = await rig.started()
    rig.local.rename(rig.local.with_name("away"))
    with pytest.raises(MirrorHalted, match="can't be read"):
        await mirror.barrier(20, allow_deletes=True)
    assert (rig.far / "main.py").exists()
    rig.local.with_name("away").rename(rig.local)
    await mirror.barrier(20)


async def test_many_deletes_halt_with_the_list(rig: Rig) -> None:
    for number in range(180):
        rig.write(f"f{number:02}.py")
    mirror = await rig.started()
    for number in range(130):
        (rig.local / f"f{number:02}.py").unlink()
    rig.write("new.py", "new\n")
    with pytest.raises(MirrorHalted, match="130 of 180") as caught:
        await mirror.barrier(20)
    assert "f00.py" in (caught.value.cause or "")
    assert not (rig.far / "new.py").exists()
    assert (await mirror.barrier(20, allow_deletes=True)).deleted == 130
    assert rig.equal()


async def test_a_halted_mirror_sends_nothing_and_acts_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout that takes files away also changes others; all of them come once it is agreed."""
    monkeypatch.setattr(push_worker, "_HALTED_S", (600.0,))
    monkeypatch.setattr(prefetch, "_SETTLED_NS", 0)  # they may be sent ahead
    for number in range(130):
        rig.write(f"old/{number}.py", f"old {number}\n")
    for number in range(110):
        rig.write(f"kept/{number}.py", "1\n")
    mirror = await rig.started()
    await mirror.barrier(20)  # a scan under way could find a part of what goes now
    (rig.local / "old").rename(rig.local.with_name("away"))
    for number in range(110):
        rig.write(f"kept/{number}.py", "2\n")
    with pytest.raises(MirrorHalted, match=r"^130 of "):
        await mirror.barrier(20)
    (notes,) = rig.state.glob("*.intents")
    had_bytes, sent = notes.stat().st_size, []
    write = MirrorChannel.write

    async def noted_write(live: MirrorChannel, data: bytes, **more: float) -> None:
        sent.append(len(data))
        await write(live, data, **more)

    monkeypatch.setattr(MirrorChannel, "write", noted_write)
    for number in range(2):
        rig.write(f"new {number}/a.py", "3\n")
        with pytest.raises(MirrorHalted, match=r"^130 of "):
            await mirror.barrier(20)
        assert mirror._syncer is not None
        await mirror._syncer.stage_ahead(DirtyPaths())  # git is at work again
    assert (sent, notes.stat().st_size) == ([], had_bytes)
    assert (rig.far / "kept/1.py").read_text() == "1\n"
    rig.local.with_name("away").rename(rig.local / "old")
    await until(rig.equal, "they are back, and all comes by itself")
    await mirror.barrier(20)  # and is recorded
    (rig.local / "old").rename(rig.local.with_name("away"))
    await until(lambda: mirror.status().state is MirrorState.HALTED, "the halt")
    assert (await mirror.barrier(20, allow_deletes=True)).deleted == 130
    assert rig.equal()


async def test_a_checkout_of_a_small_project_halts_nothing(rig: Rig) -> None:
    for number in range(39):
        rig.write(f"f{number:02}.py")
    mirror = await rig.started()
    for number in range(30):
        (rig.local / f"f{number:02}.py").unlink()
    rig.write("new.py", "new\n")
    assert (await mirror.barrier(20)).deleted == 30
    assert rig.equal()
    for number in range(30):
        rig.write(f"f{number:02}.py")
    await mirror.barrier(20)
    assert rig.equal()


@pytest.mark.parametrize("remote_dir", ["~/link_home", "~/tk/../..", "~", "/", ""])
async def test_dangerous_targets_are_refused(rig: Rig, remote_dir: str) -> None:
    rig.write("main.py")
    (rig.home / "link_home").symlink_to(".")
    mirror = Mirror(
        MirrorSpec(str(rig.local), remote_dir), rig.remote, RigHost(), state_dir=rig.state
    )
    with pytest.raises(MirrorError, match="can't be mirrored into"):
        await mirror.start()
    assert not (rig.home / "main.py").exists()


async def test_a_pull_brings_back_what_was_deleted_by_accident(rig: Rig) -> None:
    """The mirror has halted, and the cluster has the only copy."""
    names = [f"src/m{number}.py" for number in range(250)]
    for name in names:
        rig.write(name, f"{name}\n")
    mirror = await rig.started()
    # At once: an rm that takes its time could be sent in parts.
    (rig.local / "src").rename(rig.local.with_name("trash"))
    with pytest.raises(MirrorHalted):
        await mirror.barrier(20)
    report = await mirror.pull([str(rig.local / "src")])
    assert (len(report.pulled), report.owned) == (250, ())
    await until(lambda: mirror.status().state is not MirrorState.HALTED, "the end of the halt")
    await mirror.barrier(20)
    assert rig.equal() and (rig.local / names[0]).read_text() == f"{names[0]}\n"


async def test_a_jobs_file_of_a_name_that_comes_later_here_is_kept_aside(rig: Rig) -> None:
    """Also what the job writes to it afterwards: it has the file open."""
    warnings: list[str] = []
    rig.write("main.py")
    mirror = await rig.started(on_warning=warnings.append)
    await mirror.barrier(20)
    with rig.write("loss.csv", "of the job\n", far=True).open("a") as job:
        rig.write("loss.csv", "mine\n")
        report = await mirror.barrier(20)
        job.write("more of the job\n")
    assert (rig.far / "loss.csv").read_text() == "mine\n"
    assert report.replaced == ("loss.csv",)
    kept = Path(report.replaced_dir or "", "loss.csv")
    assert kept.read_text() == "of the job\nmore of the job\n"
    (warning,) = warnings
    assert warning == (
        f"loss.csv: other content was there, and is replaced; it is kept in {report.replaced_dir}"
    )
    assert report.replaced_dir is not None and report.replaced_dir.startswith(str(rig.far))
