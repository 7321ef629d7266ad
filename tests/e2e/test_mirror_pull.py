"""Outputs come back: whole, resumed, and never over what the laptop has."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.big_transfer import under_way
from tests.support.mirror_rig import Rig, children, needs_rsync, tree, until
from tunnelkit.errors import (
    MirrorConflict,
    MirrorError,
    MirrorHalted,
    TunnelkitError,
)
from tunnelkit.mirror import mirror as mirror_module
from tunnelkit.mirror.passes.syncer import Syncer
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.pull import PullReport, pull
from tunnelkit.mirror.tree.ignore import REPLACED_DIR

pytestmark = needs_rsync


async def test_outputs_come_back(rig: Rig) -> None:
    rig.write(".gitignore", "results/\n")
    rig.write("main.py")
    mirror = await rig.started()
    rig.write("results/run 1/loss.csv", "1,2\n", far=True)
    rig.write("results/-x\n.txt", "odd\n", far=True).chmod(0o755)
    (rig.far / "results" / "latest").symlink_to("run 1")
    (rig.far / "results" / "secret").symlink_to("/etc/passwd")
    rig.write("train.log", "line\n", far=True)
    report = await mirror.pull([str(rig.local / "results"), str(rig.far / "train.log")])
    assert set(report.pulled) == {
        "results/run 1/loss.csv",
        "results/-x\n.txt",
        "results/latest",
        "train.log",
    }
    assert report.mirrored == ("train.log",)
    assert os.readlink(rig.local / "results/latest") == "run 1"
    assert not (rig.local / "results/secret").is_symlink()
    assert not (rig.local / REPLACED_DIR).exists()
    for path in ("results/run 1/loss.csv", "results/-x\n.txt", "train.log"):
        here, there = (root / path for root in (rig.local, rig.far))
        assert here.read_text() == there.read_text()
        assert here.stat().st_mode == there.stat().st_mode
        assert here.stat().st_mtime_ns == there.stat().st_mtime_ns
    again = await mirror.pull([str(rig.local / "results")])
    assert again.pulled == ()
    await mirror.barrier(20)


async def test_what_a_job_writes_after_the_pull_stays(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pulled file is the mirror's from then on, but the job has it open."""
    rig.write("main.py")
    mirror = await rig.started()
    await mirror.barrier(20)
    job = rig.write("train.log", "epoch 1\n", far=True)
    passes, run = asyncio.Event(), Syncer.run
    passes.set()

    async def held(*args: Any, **named: Any) -> Any:
        await passes.wait()
        return await run(*args, **named)

    async def pulled(*args: Any, **named: Any) -> PullReport:
        passes.clear()
        report = await pull(*args, **named)
        with job.open("a") as log:
            log.write("epoch 2\n")
        passes.set()
        return report

    monkeypatch.setattr(Syncer, "run", held)
    monkeypatch.setattr(mirror_module, "pull", pulled)
    report = await mirror.pull([str(rig.local / "train.log")])
    assert report.mirrored == ("train.log",)
    with pytest.raises(MirrorConflict, match=r"train\.log"):
        await mirror.barrier(20)
    assert job.read_text() == "epoch 1\nepoch 2\n"
    await mirror.resolve([str(rig.local / "train.log")], theirs=True)
    assert (rig.local / "train.log").read_text() == "epoch 1\nepoch 2\n"
    await mirror.barrier(20)


async def test_what_was_pulled_stays_the_jobs(rig: Rig) -> None:
    """Also by the next session: what is deleted, edited or kept here, and removed there."""
    rig.write("main.py")
    mirror = await rig.started()
    for name in ("deleted.pt", "edited.txt", "removed.pt", "kept.txt"):
        rig.write(f"results/{name}", f"{name} of the job\n", far=True)
    assert len((await mirror.pull([str(rig.local / "results")])).mirrored) == 4
    await mirror.barrier(20)
    await mirror.stop()
    mirror = await rig.started()
    (rig.local / "results/deleted.pt").unlink()
    (rig.far / "results/removed.pt").unlink()
    await mirror.barrier(20)
    await mirror.resync()
    await mirror.barrier(20)
    assert (rig.far / "results/deleted.pt").read_text() == "deleted.pt of the job\n"
    assert not (rig.far / "results/removed.pt").exists()
    rig.write("results/edited.txt", "edited here\n")
    for _ in range(2):
        with pytest.raises(MirrorConflict, match=r"results/edited\.txt"):
            await mirror.barrier(20)
    assert (rig.far / "results/edited.txt").read_text() == "edited.txt of the job\n"
    report = await mirror.resolve([str(rig.local / "results/edited.txt")], theirs=False)
    assert report.replaced_dir is not None
    aside = Path(report.replaced_dir) / "results/edited.txt"
    assert aside.read_text() == "edited.txt of the job\n"
    await mirror.barrier(20)
    assert (rig.far / "results/edited.txt").read_text() == "edited here\n"
    # It is tk's from now on.
    rig.write("results/edited.txt", "edited twice\n")
    await mirror.barrier(20)
    assert (rig.far / "results/edited.txt").read_text() == "edited twice\n"
    (rig.local / "results/edited.txt").unlink()
    await mirror.barrier(20)
    assert not (rig.far / "results/edited.txt").exists()


async def test_what_a_job_writes_again_and_removes_stays_away(rig: Rig) -> None:
    """In between it is a conflict, and then a copy of it here must not come back there."""
    rig.write("main.py")
    mirror = await rig.started()
    for name in ("best.pt", "edited.pt"):
        rig.write(name, "epoch 1\n", far=True)
    await mirror.pull([str(rig.local / name) for name in ("best.pt", "edited.pt")])
    await mirror.barrier(20)
    rig.write("best.pt", "epoch 1\nepoch 2\n", far=True)
    rig.write("edited.pt", "mine\n")
    with pytest.raises(MirrorConflict, match=r"best\.pt, edited\.pt"):
        await mirror.resync()
    for name in ("best.pt", "edited.pt"):
        (rig.far / name).unlink()
    for _ in range(2):
        await mirror.resync()
        await mirror.barrier(20)
    assert not (rig.far / "best.pt").exists()
    assert (rig.far / "edited.pt").read_text() == "mine\n"
    rig.write("best.pt", "mine\n")
    await mirror.barrier(20)
    assert (rig.far / "best.pt").read_text() == "mine\n"


async def test_pulled_files_that_go_here_halt_nothing(rig: Rig) -> None:
    """The mirror would delete none of those files there."""
    rig.write("main.py")
    mirror = await rig.started()
    for number in range(120):
        rig.write(f"results/{number}.txt", "of the job\n", far=True)
    assert len((await mirror.pull([str(rig.local / "results")])).mirrored) == 120
    await mirror.barrier(20)
    shutil.rmtree(rig.local / "results")
    rig.write("main.py", "new\n")
    await mirror.barrier(20)
    assert (rig.far / "main.py").read_text() == "new\n"
    assert len(list((rig.far / "results").iterdir())) == 120


async def test_what_was_pulled_before_a_kill_stays_the_jobs(rig: Rig) -> None:
    """No pass has seen the pulled file before the session was gone."""
    rig.write("main.py")
    mirror = await rig.started()
    rig.write("model.pt", "of the job\n", far=True)
    sides, _, record = mirror._sides(), *mirror._running()
    await pull(sides, ["model.pt"], owned=lambda path: False, record=record)
    await mirror.stop()
    mirror = await rig.started()
    await mirror.barrier(20)
    (rig.local / "model.pt").unlink()
    await mirror.barrier(20)
    assert (rig.far / "model.pt").read_text() == "of the job\n"


async def test_what_is_pulled_after_an_accident_is_the_mirrors_again(rig: Rig) -> None:
    paths = [rig.write(f"src/{number}.py") for number in range(120)]
    mirror = await rig.started()
    await mirror.barrier(20)
    shutil.rmtree(rig.local / "src")
    with pytest.raises(MirrorHalted):
        await mirror.barrier(20)
    assert len((await mirror.pull([str(rig.local / "src")])).pulled) == 120
    rig.write("src/1.py", "edited\n")
    await mirror.barrier(20)
    paths[0].unlink()
    await mirror.barrier(20)
    assert (rig.far / "src/1.py").read_text() == "edited\n"
    assert not (rig.far / "src/0.py").exists()


async def test_nothing_local_is_overwritten(rig: Rig) -> None:
    rig.write(".gitignore", "out/\n")
    rig.write("main.py", "here\n")
    rig.write("out/newer.txt", "edited here\n")
    old = rig.write("out/older.txt", "old\n")
    os.utime(old, (1, 1))
    mirror = await rig.started()
    for path in ("out/newer.txt", "out/older.txt"):
        past = time.time() - 1000
        os.utime(rig.write(path, "from the job\n", far=True), (past, past))
    rig.write("main.py", "there\n", far=True)
    rig.write("late.py", "there, earlier\n", far=True)
    rig.write("late.py", "here, not yet sent\n")
    os.utime(rig.local / "late.py", (1, 1))
    report = await mirror.pull([str(rig.local)])
    assert report.pulled == ("out/older.txt",)
    assert report.kept == ("out/newer.txt",)
    assert set(report.owned) == {".gitignore", "late.py", "main.py"}
    assert (rig.local / "main.py").read_text() == "here\n"
    assert (rig.local / "late.py").read_text() == "here, not yet sent\n"
    assert (rig.local / "out/newer.txt").read_text() == "edited here\n"
    assert (rig.local / "out/older.txt").read_text() == "from the job\n"


async def test_an_edit_here_stays_whatever_the_clocks_say(rig: Rig) -> None:
    """The laptop's is behind: the edit looks older than what was pulled, also to a new session."""
    rig.write(".gitignore", "out/\n")
    mirror = await rig.started()
    for path in ("out/edited.txt", "out/plain.txt"):
        rig.write(path, "from the job\n", far=True)
    await mirror.pull([str(rig.local / "out")])
    await mirror.stop()
    mirror = await rig.started()
    past = time.time() - 1000
    os.utime(rig.write("out/edited.txt", "edited here\n"), (past, past))
    rig.write("out/plain.txt", "from the job, again\n", far=True)
    report = await mirror.pull([str(rig.local / "out")])
    assert (report.pulled, report.kept) == (("out/plain.txt",), ("out/edited.txt",))
    assert (rig.local / "out/edited.txt").read_text() == "edited here\n"
    assert (rig.local / "out/plain.txt").read_text() == "from the job, again\n"
    (rig.local / "out/edited.txt").unlink()
    assert (await mirror.pull([str(rig.local / "out")])).pulled == ("out/edited.txt",)


async def test_of_a_file_and_a_symlink_the_newer_one_stays(rig: Rig) -> None:
    rig.write(".gitignore", "out/\n")
    for name in ("file", "old"):
        rig.write(f"out/{name}", "here\n")
    for name in ("link", "turned"):
        (rig.local / "out" / name).symlink_to("here")
    os.utime(rig.local / "out/old", (1, 1))
    mirror = await rig.started()
    past = time.time() - 1000
    rig.write("out/link", "there\n", far=True)
    for name in ("file", "old", "turned"):
        (rig.far / "out" / name).symlink_to("link")
    for name in ("file", "link", "old", "turned"):
        os.utime(rig.far / "out" / name, (past, past), follow_symlinks=False)
    report = await mirror.pull([str(rig.local / "out")])
    assert report.pulled == ("out/old",)
    assert report.kept == ("out/file", "out/link", "out/turned")
    assert (rig.local / "out/file").read_text() == "here\n"
    assert os.readlink(rig.local / "out/link") == "here"
    assert os.readlink(rig.local / "out/turned") == "here"
    assert os.readlink(rig.local / "out/old") == "link"


async def test_a_big_file_that_goes_up_does_not_keep_outputs_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pass has seen a new file of the laptop's; it is not overwritten all the same."""
    monkeypatch.setattr("tunnelkit.mirror.mirror._PULL_WAIT_S", 0.5)
    rig.write(".gitignore", "out/\n")
    mirror, big = await under_way(rig, monkeypatch)
    rig.write("out/loss.csv", "1\n", far=True)
    rig.write("new.py", "there, earlier\n", far=True)
    rig.write("new.py", "here, not yet sent\n")
    os.utime(rig.local / "new.py", (1, 1))
    report = await mirror.pull([str(rig.local)])
    assert report.pulled == ("out/loss.csv",)
    assert "new.py" in report.owned
    assert (rig.local / "new.py").read_text() == "here, not yet sent\n"
    big.may_end.set()
    await mirror.barrier(60)
    assert (rig.far / "new.py").read_text() == "here, not yet sent\n"


async def test_paths_that_lead_out_are_refused(rig: Rig) -> None:
    rig.write(".gitignore", "out/\nlink\n")
    mirror = await rig.started()
    outside = rig.home / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret\n")
    (rig.far / "door").symlink_to(outside)
    with pytest.raises(MirrorError, match="leads out"):
        await mirror.pull([str(rig.local / "door" / "secret.txt")])
    for path in (outside / "secret.txt", rig.far / ".." / "x", rig.local / ".." / "x", "/etc"):
        with pytest.raises(MirrorError, match="not in the mirrored directory"):
            await mirror.pull([str(path)])
    with pytest.raises(MirrorError, match=r"nothing\.txt is not in 127"):
        await mirror.pull([str(rig.local / "nothing.txt")])
    elsewhere = rig.local.parent / "elsewhere"
    elsewhere.mkdir()
    (rig.local / "link").symlink_to(elsewhere)
    rig.write("link/x.txt", far=True)
    with pytest.raises(MirrorError, match="not pulled") as caught:
        await mirror.pull([str(rig.far / "link" / "x.txt")])
    assert "leads out of" in (caught.value.cause or "")
    assert list(elsewhere.iterdir()) == []


async def test_a_broken_transfer_goes_on_where_it_was(rig: Rig) -> None:
    rig.write(".gitignore", "out/\n")
    mirror = await rig.started()
    big = rig.far / "out" / "big.bin"
    big.parent.mkdir()
    big.write_bytes(os.urandom(1 << 20) * 192)
    pulling = asyncio.create_task(mirror.pull([str(rig.local / "out")]))

    def some_came() -> bool:
        coming = rig.local.glob(f"{REPLACED_DIR}/incoming-*/new/out/.big.bin.*")
        return any(path.stat().st_size > 1 << 20 for path in coming)

    await until(lambda: some_came() or pulling.done(), "the first bytes")
    rig.sshd.stop()
    try:
        with pytest.raises(TunnelkitError):
            await pulling
    finally:
        rig.sshd.start()
    partial = rig.local / REPLACED_DIR / "partial" / "big.bin"
    assert not (rig.local / "out/big.bin").exists()
    assert partial.stat().st_size > 0
    await mirror.resync()
    last: list[Progress] = []
    report = await mirror.pull([str(rig.local / "out")], on_progress=last.append)
    assert report.pulled == ("out/big.bin",)
    assert (rig.local / "out/big.bin").read_bytes() == big.read_bytes()
    assert last and last[-1].bytes_total == 192 << 20
    assert not partial.exists()
    assert not [line for line in children() if line.startswith("rsync")]
    assert {os.fsdecode(path) for path in tree(rig.far)} == {".gitignore", "out", "out/big.bin"}
