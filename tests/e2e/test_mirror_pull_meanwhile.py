"""Outputs come back while the job that makes them writes them again, and removes some."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, needs_rsync
from tests.support.mirror_sshd import Sshd
from tunnelkit.errors import MirrorError, TimeoutExpired
from tunnelkit.mirror import pull as pull_module
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.pull import Listing, Sides, listing
from tunnelkit.mirror.transfer.tar import TarTransfer
from tunnelkit.mirror.tree.ignore import REPLACED_DIR

pytestmark = needs_rsync

NS = 1_000_000_000


async def ignoring_out(rig: Rig) -> Mirror:
    """A mirror that has started; the job's outputs are in out/."""
    rig.write(".gitignore", "out/\n")
    return await rig.started()


async def test_what_a_job_writes_again_in_the_same_second_comes(
    rsync_rig: Rig, far_programs: None
) -> None:
    """The size is the same; in `ns` the time differs, in the others it does not at all."""
    rig = rsync_rig
    mirror = await ignoring_out(rig)
    now_ns, old_ns = time.time_ns(), time.time_ns() - 3600 * NS
    before = {"ns": old_ns, "same": now_ns, "whole": now_ns // NS * NS, "kept": now_ns}
    for name, mtime_ns in before.items():
        os.utime(rig.write(f"out/{name}", "step 1\n", far=True), ns=(mtime_ns, mtime_ns))
    for path in (rig.local / "out", rig.far / "out/same"):
        await mirror.pull([str(path)])
    after = {"ns": old_ns // NS * NS + (NS - 1), "same": now_ns, "whole": now_ns // NS * NS}
    for name, mtime_ns in after.items():
        os.utime(rig.write(f"out/{name}", "step 2\n", far=True), ns=(mtime_ns, mtime_ns))
    await mirror.stop()
    mirror = await rig.started()
    report = await mirror.pull([str(rig.local / "out")])
    assert report.pulled == ("out/ns", "out/same", "out/whole")
    assert report.kept == ("out/kept",)
    for name in after:
        assert (rig.local / "out" / name).read_text() == "step 2\n"


async def test_outputs_come_though_a_file_is_not_read_there_in_time(
    rsync_rig: Rig, far_programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was new when it was pulled, and a digest of it takes too long; the next pull asks again"""
    rig, run = rsync_rig, rsync_rig.remote.run
    mirror = await ignoring_out(rig)
    there = rig.write("out/log", "step 1\n", far=True)
    await mirror.pull([str(rig.local / "out")])
    now_ns = there.stat().st_mtime_ns
    os.utime(rig.write("out/log", "step 2\n", far=True), ns=(now_ns, now_ns))
    rig.write("out/new", far=True)

    async def late(argv: Sequence[str], **more: Any) -> Any:
        if "sha256sum" in " ".join(argv):
            raise TimeoutExpired("no answer in time", transient=True)
        return await run(argv, **more)

    monkeypatch.setattr(rig.remote, "run", late)
    report = await mirror.pull([str(rig.local / "out")])
    assert (report.pulled, report.uncompared) == (("out/new",), ("out/log",))
    monkeypatch.setattr(rig.remote, "run", run)
    report = await mirror.pull([str(rig.local / "out")])
    assert (report.pulled, report.uncompared) == (("out/log",), ())
    assert (rig.local / "out/log").read_text() == "step 2\n"


async def test_an_edit_that_only_its_content_shows_is_kept(
    rsync_rig: Rig, far_programs: None
) -> None:
    """Size and time are those of the pull: tk can't tell it from what the job wrote again."""
    rig = rsync_rig
    mirror = await ignoring_out(rig)
    there = rig.write("out/log", "step 1\n", far=True)
    await mirror.pull([str(rig.local / "out")])
    now_ns = there.stat().st_mtime_ns
    os.utime(rig.write("out/log", "mine 1\n"), ns=(now_ns, now_ns))
    report = await mirror.pull([str(rig.local / "out")])
    assert report.pulled == ("out/log",)
    assert (rig.local / "out/log").read_text() == "step 1\n"
    (kept,) = (rig.local / REPLACED_DIR).glob("*/out/log")
    assert kept.read_text() == "mine 1\n"
    assert [one.name for one in (rig.local / REPLACED_DIR).iterdir() if one.is_dir()] == [
        kept.parent.parent.name
    ]


def goes_once_listed(rig: Rig, monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """A job that removes these files and directories between the listing and the transfer."""

    async def listed(sides: Sides, wanted: Sequence[str]) -> Listing:
        found = await listing(sides, wanted)
        for path in paths:
            there = rig.far / path
            shutil.rmtree(there) if there.is_dir() else there.unlink()
        return found

    monkeypatch.setattr(pull_module, "listing", listed)


async def test_a_job_that_removes_its_files_meanwhile(
    rsync_rig: Rig, far_programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rsync_rig
    mirror = await ignoring_out(rig)
    for name in ("best.pt", "step1.pt", "sub/step2.pt", "same.pt"):
        rig.write(f"out/{name}", name, far=True)
    (rig.far / "out/big.pt").write_bytes(b"x" * (9 << 20))
    await mirror.pull([str(rig.local / "out/same.pt")])
    goes_once_listed(rig, monkeypatch, "out/step1.pt", "out/sub/step2.pt", "out/big.pt")
    report = await mirror.pull([str(rig.local / "out")])
    assert report.pulled == ("out/best.pt",)
    assert report.kept == ("out/same.pt",)
    assert report.gone == ("out/big.pt", "out/step1.pt", "out/sub/step2.pt")
    assert report.refused == ()
    assert not (rig.local / "out/sub").exists()
    goes_once_listed(rig, monkeypatch, "out/best.pt", "out/same.pt")
    report = await mirror.pull([str(rig.local / "out")])
    assert (report.pulled, report.gone) == ((), ("out/best.pt", "out/same.pt"))
    assert (rig.local / "out/best.pt").read_text() == "best.pt"


async def test_tar_sends_what_stays_here_only_once(
    rsync_rig: Rig, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, rounds, fetch = rsync_rig, [], TarTransfer.fetch

    async def counted(self: TarTransfer, paths: Collection[str], *args: Any, **more: Any) -> Any:
        rounds.append(sorted(paths))
        return await fetch(self, paths, *args, **more)

    monkeypatch.setattr(TarTransfer, "fetch", counted)
    with far_path(sshd, tmp_path / "bin", without=("rsync",)):
        mirror = await ignoring_out(rig)
        rig.write("out/same.pt", far=True)
        (rig.far / "out/same_big.pt").write_bytes(b"x" * (9 << 20))
        await mirror.pull([str(rig.local / "out")])
        rig.write("out/step.pt", far=True)
        rig.write("out/best.pt", far=True)
        goes_once_listed(rig, monkeypatch, "out/step.pt")
        rounds.clear()
        report = await mirror.pull([str(rig.local / "out")])
    assert report.kept == ("out/same.pt", "out/same_big.pt")
    assert (report.pulled, report.gone) == (("out/best.pt",), ("out/step.pt",))
    assert len(rounds) == 1


async def test_a_file_that_was_named_and_goes_meanwhile_fails_the_pull(
    rsync_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rsync_rig
    mirror = await ignoring_out(rig)
    for name in ("best.pt", "step.pt"):
        rig.write(f"out/{name}", far=True)
    goes_once_listed(rig, monkeypatch, "out/step.pt")
    with pytest.raises(MirrorError, match=r"out/step\.pt is not on 127"):
        await mirror.pull([str(rig.local / "out/step.pt"), str(rig.local / "out/best.pt")])
    assert (rig.local / "out/best.pt").exists()


async def test_a_directory_that_was_named_and_goes_meanwhile_fails_the_pull(
    rsync_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rsync_rig
    mirror = await ignoring_out(rig)
    for name in ("out/run/1/a", "out/run/b", "out/best.pt"):
        rig.write(name, far=True)
    goes_once_listed(rig, monkeypatch, "out/run")
    with pytest.raises(MirrorError, match=r"out/run is not on 127"):
        await mirror.pull([str(rig.local / name) for name in ("out/run", "out/best.pt")])
    assert (rig.local / "out/best.pt").exists()


async def test_what_can_not_be_read_there_fails_the_pull_also_if_others_go(
    rsync_rig: Rig, far_programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rsync_rig
    mirror = await ignoring_out(rig)
    rig.write("out/step.pt", far=True)
    rig.write("out/best.pt", far=True)
    rig.write("out/here/x", "in the way of a file\n")
    rig.write("out/here", far=True)
    goes_once_listed(rig, monkeypatch, "out/step.pt")
    with pytest.raises(MirrorError, match="not all files came"):
        await mirror.pull([str(rig.local / "out")])
    assert (rig.local / "out/best.pt").exists()


async def test_what_can_not_be_looked_at_there_is_not_taken_for_removed(
    rsync_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rsync_rig
    mirror = await ignoring_out(rig)
    rig.write("out/best.pt", far=True)
    rig.write("out/step.pt", far=True)
    goes_once_listed(rig, monkeypatch, "out/step.pt")
    asked, run = [], rig.remote.run

    async def without_stat(argv: Sequence[str], **more: Any) -> Any:
        asked.append(" ".join(argv))
        return await run([word.replace("stat -", "false stat -") for word in argv], **more)

    monkeypatch.setattr(rig.remote, "run", without_stat)
    with pytest.raises(MirrorError, match="not all files came"):
        await mirror.pull([str(rig.local / "out")])
    assert any("stat -" in text for text in asked)
    assert (rig.local / "out/best.pt").exists()
