"""Mounts as a session holds them: a dead server is noticed, readers get errors, umount always
works; and F5 in a mounted tree."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.mirror_rig import Rig, needs_fuse, needs_rsync, until
from tests.support.mirror_sshd import descendants
from tests.support.tkrig import Project, line_of
from tunnelkit.errors import ExitCode, UsageError
from tunnelkit.mount import sshfs
from tunnelkit.mount.mount_table import is_mounted, mount_user, read_pid, record_dir
from tunnelkit.mount.mounts import Mounts

pytestmark = needs_rsync


@pytest.fixture
def rig(rsync_rig: Rig) -> Rig:
    """Mounts have nothing to do with an agent."""
    return rsync_rig


@dataclass
class Mounted:
    """A mount that is watched by a session's `Mounts`, quick enough for a test."""

    mounts: Mounts
    point: Path
    far: Path
    state: Path
    said: list[str]

    def shown(self) -> str:
        return str(self.mounts.describe()[0]["state"]) if self.mounts.describe() else "dropped"


@pytest.fixture
async def mounted(rig: Rig, tmp_path: Path) -> AsyncIterator[Mounted]:
    far, point, said = rig.home / "far", tmp_path / "point", list[str]()
    far.mkdir()
    point.mkdir()
    (far / "file").write_text("there\n")
    (far / "big").write_bytes(bytes(1 << 20))
    state = tmp_path / "s"
    mounts = Mounts(
        rig.remote, state_dir=state, owner="me", say=said.append, ask_every_s=0.2, answer_s=1.0
    )
    await mounts.mount(str(far), point)
    yield Mounted(mounts, point, far, state, said)
    await mounts.close()
    await sshfs.umount(point, state_dir=state)


def silence(rig: Rig) -> list[int]:
    """Stop every connection of the server: it is silent, not closed."""
    assert rig.sshd.process is not None
    pids = descendants(rig.sshd.process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


def go_on(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def output(*argv: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(30):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, out.decode()


@needs_fuse
async def test_a_silent_server_is_noticed_and_readers_get_errors(
    rig: Rig, mounted: Mounted
) -> None:
    stopped = silence(rig)
    assert stopped
    code, said = await output("cat", str(mounted.point / "big"))
    assert code == 1 and "Input/output error" in said
    # The next question makes a new connection, which this server takes: it is back by itself.
    await until(lambda: mounted.shown() == "ok", "the mount is back")
    assert is_mounted(mounted.point)
    assert await output("cat", str(mounted.point / "file")) == (0, "there\n")
    go_on(stopped)


@needs_fuse
async def test_a_server_that_is_gone_and_comes_back(rig: Rig, mounted: Mounted) -> None:
    rig.sshd.stop()
    await until(lambda: mounted.shown() == "disconnected", "it is noticed")
    code, said = await output("cat", str(mounted.point / "file"))
    assert code == 1 and "Input/output error" in said
    assert "reading there fails" in mounted.said[-1]
    rig.sshd.start()
    await until(lambda: mounted.shown() == "ok", "it is back")
    assert mounted.said[-1] == f"mount: {mounted.point} is back"
    assert await output("cat", str(mounted.point / "file")) == (0, "there\n")


@needs_fuse
async def test_a_killed_sshfs_is_cleared_away(mounted: Mounted) -> None:
    pid = read_pid(record_dir(mounted.point, mounted.state) / "pid")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: mounted.shown() == "dropped", "it is noticed")
    assert not is_mounted(mounted.point)
    assert mounted.said == [f"mount: the sshfs of {mounted.point} has ended: unmounted"]
    assert list((mounted.state / "sshfs").iterdir()) == []


@needs_fuse
async def test_umount_by_somebody_else_is_noticed(mounted: Mounted) -> None:
    assert await sshfs.umount(mounted.point, state_dir=mounted.state)
    await until(lambda: mounted.shown() == "dropped", "it is noticed")
    assert mounted.said == []


@needs_fuse
@pytest.mark.parametrize("server", ["alive", "silent", "gone"])
async def test_umount_of_a_busy_one_without_its_record(
    rig: Rig, tmp_path: Path, server: str
) -> None:
    far, point = rig.home / "far", tmp_path / "point"
    far.mkdir()
    point.mkdir()
    await sshfs.mount(rig.remote, str(far), point, state_dir=tmp_path / "s")
    busy = await asyncio.create_subprocess_exec("sleep", "60", cwd=point)
    stopped: list[int] = []
    try:
        shutil.rmtree(tmp_path / "s")
        if server == "silent":
            stopped = silence(rig)
        elif server == "gone":
            rig.sshd.stop()
        assert await sshfs.umount(point, state_dir=tmp_path / "s")
        assert not is_mounted(point)
        assert list(point.iterdir()) == []
    finally:
        busy.kill()
        await busy.wait()
        go_on(stopped)
        await sshfs.umount(point, state_dir=tmp_path / "s")


@needs_fuse
async def test_a_successor_goes_on_with_the_mounts(rig: Rig, mounted: Mounted) -> None:
    def mounts(owner: str) -> Mounts:
        return Mounts(rig.remote, state_dir=mounted.state, owner=owner)

    other, heir = mounts("somebody else"), mounts("me")
    assert (other.adopt(), heir.adopt()) == (0, 1)
    try:
        assert heir.remote_of(str(mounted.point)) == str(mounted.far)
        assert heir.remote_of(str(mounted.point / "a/b.py")) == str(mounted.far / "a/b.py")
        assert heir.remote_of(str(mounted.point) + "s") is None
        assert [one.local_root for one in heir.mappings()] == [str(mounted.point)]
    finally:
        await heir.close()
    assert not is_mounted(mounted.point)


async def test_only_an_sshfs_of_this_user_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mount_user(Path("/proc")) is None
    assert not await sshfs.umount(Path("/proc"), state_dir=tmp_path)
    monkeypatch.setattr(sshfs, "mount_user", lambda where: os.getuid() + 1)
    with pytest.raises(UsageError, match="is not yours") as caught:
        await sshfs.umount(tmp_path / "point", state_dir=tmp_path)
    assert str(os.getuid() + 1) in (caught.value.cause or "")


@needs_fuse
async def test_tk_mount_lists_and_umounts(project: Project) -> None:
    await project.up("node1")
    point = project.base / "mounted"
    point.mkdir()
    await project.tk("mount", str(project.remote()), str(point))
    try:
        (one,) = (await project.tk("mount", "--json")).json
        wanted = {"mountpoint": str(point), "remote": str(project.remote()), "state": "ok"}
        assert wanted.items() <= one.items()
        assert (await project.status())["mounts"] == [one]
        line = f"mount    {point} <- {one['host']}:{project.remote()}\n"
        assert line in (await project.tk("status")).out
        inside = project.dir / "inside"
        inside.mkdir()
        refused = await project.tk("mount", str(inside), code=ExitCode.MIRROR)
        assert "which is mirrored" in refused.err
    finally:
        await project.tk("umount", str(point), code=None)
    assert (await project.tk("mount")).out == "nothing is mounted\n"
    await project.tk("mount", "one", "two", "three", code=ExitCode.USAGE)
    await project.tk("down")


@pytest.mark.slow
@needs_fuse
async def test_a_mount_outlives_a_killed_session(project: Project) -> None:
    status = await project.up("node1")
    point = project.base / "mounted"
    point.mkdir()
    second = project.base / "second"
    second.mkdir()
    await project.tk("mount", str(project.remote()), str(point))
    await project.tk("mount", str(project.remote()), str(second))
    os.kill(status["pid"], signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{status['pid']}").exists(), "the session is gone")
    listed = (await project.tk("mount", "--json")).json
    assert [one["mountpoint"] for one in listed] == [str(point), str(second)]
    assert {one["state"] for one in listed} == {"mounted"}
    await project.up("node1")
    adopted = (await project.status())["mounts"]
    assert [one["mountpoint"] for one in adopted] == [str(point), str(second)]
    assert {one["state"] for one in adopted} == {"ok"}
    assert await asyncio.to_thread((point / "2.py").exists)
    os.kill((await project.status())["pid"], signal.SIGKILL)
    assert (await project.tk("umount", str(point))).out == f"unmounted {point}\n"
    assert not is_mounted(point)
    assert is_mounted(second)
    await project.tk("down")
    assert not is_mounted(second)


@pytest.mark.slow
@needs_fuse
@pytest.mark.parametrize("mirror", ["false", "true"])
async def test_f5_in_a_mounted_tree(project: Project, mirror: str) -> None:
    project.configure(f"[mirror]\nenabled = {mirror}\n")
    far = project.lab.home / f"sources-{project.dir.name}"
    far.mkdir()
    point = project.base / "mounted"
    point.mkdir()
    home = project.dir
    shutil.copy(home / "2.py", far / "2.py")
    try:
        await project.up("node1")
        await project.tk("mount", str(far), str(point))
        project.dir = point  # where the person is: `tk loop` finds the only session there is
        loop = await project.loop("python", "2.py")
        line = line_of((far / "2.py").read_text(), "total += step")
        editor = await project.editor()
        await editor.attach({str(point / "2.py"): [line]}, timeout_s=60)
        _, frame = await editor.stopped(60)
        assert (frame["source"]["path"], frame["line"]) == (str(point / "2.py"), line)
        await loop.quit()
    finally:
        project.dir = home
        await project.tk("umount", str(point), code=None)
        shutil.rmtree(far)


@needs_fuse
async def test_all_ssh_killed_and_the_mount_is_back_with_the_link(project: Project) -> None:
    await project.up("node1")
    point = project.base / "mounted"
    point.mkdir()
    await project.tk("mount", str(project.remote()), str(point))
    pid = read_pid(record_dir(point, project.base / "s") / "pid")
    try:
        processes.kill(project.ssh_processes())
        content = (project.dir / "2.py").read_text()
        # Errors meanwhile are what is promised: none of these questions hangs.
        async with asyncio.timeout(60):
            while await output("cat", str(point / "2.py")) != (0, content):
                await asyncio.sleep(0.1)
        assert read_pid(record_dir(point, project.base / "s") / "pid") == pid
        (one,) = (await project.status())["mounts"]
        assert one["mountpoint"] == str(point)
    finally:
        await project.tk("umount", str(point), code=None)


@pytest.mark.slow
@needs_fuse
async def test_a_stuck_sftp_server_behind_a_live_connection(project: Project) -> None:
    await project.up("node1")
    point = project.base / "mounted"
    point.mkdir()
    await project.tk("mount", str(project.remote()), str(point))
    below = processes.descendants([one.pid for one in project.sshd_connections()])
    stuck = [one.pid for one in below if "sftp" in one.program]
    assert stuck, below
    try:
        for pid in stuck:
            os.kill(pid, signal.SIGSTOP)
        code, said = await output("cat", str(point / "2.py"))
        assert code == 1 and "Input/output error" in said
        # With a new sftp server it is back; the session and its connection never were away.
        content = (project.dir / "2.py").read_text()
        async with asyncio.timeout(60):
            while await output("cat", str(point / "2.py")) != (0, content):
                await asyncio.sleep(0.1)
        assert (await project.status())["state"] == "ready"
    finally:
        go_on(stuck)
        await project.tk("umount", str(point), code=None)
