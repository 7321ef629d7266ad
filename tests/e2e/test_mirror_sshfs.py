"""`tk mount`: the remote directory by a real sshfs, and how it goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.mirror_rig import Rig, children, needs_fuse, needs_rsync
from tests.support.mirror_sshd import descendants
from tests.support.tkrig import Project
from tunnelkit.errors import ExitCode, MirrorError
from tunnelkit.mount import sshfs
from tunnelkit.mount.mount_table import is_mounted

pytestmark = needs_rsync


@needs_fuse
async def test_sshfs_mount_and_umount(rig: Rig, tmp_path: Path) -> None:
    far = rig.home / "dir on cluster"
    far.mkdir()
    (far / "a.txt").write_text("there\n")
    point = tmp_path / "mount point, here"
    point.mkdir()
    state = tmp_path / "plain"
    await sshfs.mount(rig.remote, str(far), point, state_dir=state)
    try:
        assert is_mounted(point)
        assert await asyncio.to_thread((point / "a.txt").read_text) == "there\n"
        await asyncio.to_thread((point / "b.txt").write_text, "here\n")
        assert (far / "b.txt").read_text() == "here\n"
        with pytest.raises(MirrorError, match="can't mount"):
            await sshfs.mount(rig.remote, str(far), point, state_dir=state)
        assert is_mounted(point)
    finally:
        assert await sshfs.umount(point, state_dir=state)
    assert not is_mounted(point)
    assert not [line for line in children() if line.startswith("sshfs")]
    assert list((state / "sshfs").iterdir()) == []
    assert not await sshfs.umount(point, state_dir=state), "there is nothing to unmount any more"


@needs_fuse
async def test_sshfs_of_a_dead_server_unmounts(rig: Rig, tmp_path: Path) -> None:
    far = rig.home / "dir"
    far.mkdir()
    point = tmp_path / "point"
    point.mkdir()
    await sshfs.mount(rig.remote, str(far), point, state_dir=tmp_path / "s")
    reader = None
    try:
        assert rig.sshd.process is not None
        for pid in descendants(rig.sshd.process.pid):  # silent, not closed
            os.kill(pid, signal.SIGSTOP)
        reader = await asyncio.create_subprocess_exec(
            "ls", str(point / "x"), stderr=subprocess.DEVNULL
        )
    finally:
        await sshfs.umount(point, state_dir=tmp_path / "s")
        if reader is not None:
            async with asyncio.timeout(10):
                await reader.wait()
    assert not is_mounted(point)


@needs_fuse
async def test_sshfs_refusals(rig: Rig, tmp_path: Path) -> None:
    point = tmp_path / "point"
    with pytest.raises(MirrorError, match="can't mount"):
        await sshfs.mount(rig.remote, str(rig.home), point, state_dir=tmp_path / "s")
    point.mkdir()
    with pytest.raises(MirrorError, match="can't mount") as caught:
        await sshfs.mount(rig.remote, "/no/such/dir", point, state_dir=tmp_path / "s")
    assert "No such file" in (caught.value.cause or "")
    odd = tmp_path / "odd state"
    with pytest.raises(MirrorError, match="state directory"):
        await sshfs.mount(rig.remote, str(rig.home), point, state_dir=odd)
    assert list((odd / "sshfs").iterdir()) == []
    (point / "file").touch()
    with pytest.raises(MirrorError, match="can't mount") as caught:
        await sshfs.mount(rig.remote, str(rig.home), point, state_dir=tmp_path / "s")
    assert "not empty" in (caught.value.cause or "")
    assert not is_mounted(point)


@needs_fuse
async def test_tk_mount_and_umount(project: Project) -> None:
    await project.up("node1")
    point = project.base / "mounted"
    point.mkdir()
    await project.tk("mount", str(point), "--remote", str(project.remote()))
    try:
        assert (
            await asyncio.to_thread((point / "2.py").read_text)
            == (project.dir / "2.py").read_text()
        )
    finally:
        done = await project.tk("umount", str(point))
    assert done.out.strip() == f"unmounted {point}"
    again = await project.tk("umount", str(point), code=ExitCode.USAGE)
    assert again.err.startswith(f"tk: no sshfs is mounted at {point} — ")
    assert again.err.count("\n") == 1
    await project.tk("down")
