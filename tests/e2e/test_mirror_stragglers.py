"""What a broken transfer brings after all, over what was sent since: neither somebody's edit, nor
left there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.mirror_rig import Rig, needs_rsync, until
from tunnelkit.errors import ConnectionFailed, MirrorConflict
from tunnelkit.mirror.api import FileAgent
from tunnelkit.mirror.mirror import Mirror
from tunnelkit.mirror.passes import remote_doubts
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.transfer.rsync import Rsync
from tunnelkit.mirror.tree.scanner import FILE, digest, lstat

pytestmark = needs_rsync


class Cut:
    """The agent's link is away, and the transfer's breaks once it has sent a file."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.is_up = True
        self.sent: list[str] = []
        push = Rsync.push

        async def pushed(rsync: Rsync, paths: set[str], *args: object, **more: object) -> object:
            if self.is_up:
                return await push(rsync, paths, *args, **more)  # type: ignore[arg-type]
            self.sent += paths
            raise ConnectionFailed("the link broke", transient=True)

        monkeypatch.setattr(Rsync, "push", pushed)

    def agent(self) -> FileAgent | None:
        return self.rig.file_agent() if self.is_up else None

    async def breaks_off(self, path: str, text: str) -> tuple[str, int]:
        """Save this; its sending is broken off. Content and mtime of what may come yet."""
        self.is_up = False
        self.sent.clear()
        mtime_ns = self.rig.write(path, text).stat().st_mtime_ns
        await until(lambda: path in self.sent, "the transfer")
        self.is_up = True
        return text, mtime_ns

    def comes_after_all(self, path: str, late: tuple[str, int]) -> Path:
        """As rsync's receiver does it."""
        far = self.rig.far / path
        part = far.with_name(".f1.txt.Xa81zQ")
        part.write_text(late[0])
        os.utime(part, ns=(late[1], late[1]))
        part.rename(far)
        return far


@pytest.fixture
def cut(live_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Cut:
    return Cut(live_rig, monkeypatch)


async def started(cut: Cut) -> Mirror:
    cut.rig.write("saved/f1.txt", "1\n")
    mirror = await cut.rig.started(agent=cut.agent)
    await mirror.barrier(20)
    return mirror


async def test_it_is_no_edit_of_somebody_else(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_doubts, "_STRAGGLERS_S", ())
    monkeypatch.setattr(remote_doubts, "_STRAGGLING_S", 0.0)
    mirror = await started(cut)
    late = await cut.breaks_off("saved/f1.txt", "22\n")
    cut.rig.write("saved/f1.txt", "333\n")
    await mirror.barrier(20)
    far = cut.comes_after_all("saved/f1.txt", late)
    cut.rig.write("saved/f1.txt", "4444\n")
    await mirror.barrier(20)
    assert far.read_text() == "4444\n"
    # What a person writes there still counts.
    far.write_text("mine\n")
    cut.rig.write("saved/f1.txt", "55555\n")
    with pytest.raises(MirrorConflict):
        await mirror.barrier(20)


async def test_it_does_not_stay(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = await started(cut)
    late = await cut.breaks_off("saved/f1.txt", "22\n")
    cut.rig.write("saved/f1.txt", "333\n")
    await mirror.barrier(20)
    far = cut.comes_after_all("saved/f1.txt", late)
    await mirror.barrier(20)
    assert far.read_text() == "333\n", "a barrier looks"
    monkeypatch.setattr(remote_doubts, "_STRAGGLING_S", 0.0)
    late = await cut.breaks_off("saved/f1.txt", "4444\n")
    cut.rig.write("saved/f1.txt", "55555\n")
    await mirror.barrier(20)
    cut.comes_after_all("saved/f1.txt", late)
    await until(lambda: far.read_text() == "55555\n", "a look by itself", 10)


async def test_what_a_killed_session_s_rsync_brings_of_a_deleted_directory_goes(rig: Rig) -> None:
    rig.write("stays.txt")
    await (await rig.started()).stop()
    late = rig.write("d/late.txt", "it was being sent\n")
    entry = {path: lstat(str(rig.local), path) for path in ("d", "d/late.txt")}
    mtime_ns, text = late.stat().st_mtime_ns, digest(str(rig.local), "d/late.txt", FILE)
    manifest = Manifest(next(rig.state.glob("mirror-*.sqlite")))
    manifest.open()
    assert entry["d"] is not None and entry["d/late.txt"] is not None
    manifest.intend(
        {
            "d": ManifestEntry(entry["d"], made=True),
            "d/late.txt": ManifestEntry(entry["d/late.txt"], text),
        }
    )
    manifest.close()
    late.unlink()
    late.parent.rmdir()

    mirror = await rig.started()
    assert (await mirror.barrier(20)).sent == 0 and not (rig.far / "d").exists()
    there = rig.write("d/late.txt", "it was being sent\n", far=True)
    os.utime(there, ns=(mtime_ns, mtime_ns))
    await until(lambda: not (rig.far / "d").exists(), "the end of what the rsync brought")
    assert rig.equal()


async def test_a_job_s_file_keeps_the_directory_that_a_killed_session_made(rig: Rig) -> None:
    rig.write("stays.txt")
    rig.write("d/f.txt", "f\n")
    mirror = await rig.started()
    await mirror.barrier(20)
    await mirror.stop()
    manifest = Manifest(next(rig.state.glob("mirror-*.sqlite")))
    manifest.open()
    manifest.intend({path: row._replace(sent=False) for path, row in manifest.rows.items()})
    manifest.close()
    (rig.local / "d/f.txt").unlink()
    (rig.local / "d").rmdir()
    output = rig.write("d/output.txt", "a job's\n", far=True)

    mirror = await rig.started()
    await mirror.barrier(20)
    assert os.listdir(rig.far / "d") == ["output.txt"]
    assert output.read_text() == "a job's\n"
