"""A home there that takes nothing, a directory here that is no mountpoint: one line, one code."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.refusals import refused
from tests.support.tkrig import Project, eventually
from tunnelkit import lab as tk_lab
from tunnelkit.errors import ExitCode
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.slow


@contextmanager
def small_file_system(lab: LabInfo, path: Path, *options: str) -> Iterator[Path]:
    """A file system of 16 KiB, with `jobs` in it, at `path` as the login host sees it; gives
    where it is seen from here. For root, whom no mode of a directory stops."""
    status = tk_lab.status(lab.dir)
    login = next(daemon.pid for daemon in status.daemons if daemon.name == "sshd-login")
    there = ["nsenter", f"--mount=/proc/{login}/ns/mnt", "--"]
    made = [*there, "mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "none", str(path)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount (a container without CAP_SYS_ADMIN)")
    try:
        seen = Path(f"/proc/{login}/root{path}")
        (seen / "jobs").mkdir()
        if options:
            remount = ",".join(("remount", *options))
            subprocess.run([*there, "mount", "-o", remount, str(path)], check=True)
        yield seen
    finally:
        subprocess.run([*there, "umount", str(path)], check=True)


@contextmanager
def unwritable(lab: LabInfo, path: Path) -> Iterator[Path]:
    """`path` with a `jobs` in it, and nothing can be added there; where it is seen from here."""
    if os.geteuid() == 0:
        with small_file_system(lab, path, "ro") as seen:
            yield seen
        return
    (path / "jobs").mkdir()
    path.chmod(0o500)
    try:
        yield path
    finally:
        path.chmod(0o700)


@pytest.fixture
def cache(project: Project) -> Iterator[Path]:
    """An empty ~/.cache/tunnelkit on the cluster, where no agent is stored yet; the shared
    lab's own is back afterwards."""
    path = project.lab.home / ".cache" / "tunnelkit"
    aside = path.with_name("tunnelkit.aside")
    path.mkdir(parents=True, exist_ok=True)
    path.rename(aside)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)
        aside.rename(path)


async def cannot_store(project: Project, why: str) -> None:
    line = await refused(
        project, "up", code=ExitCode.ALLOCATION, says="can't store the agent in ~/.cache/tunnelkit"
    )
    assert "on login" in line and "full or read-only" in line
    assert why in line


@pytest.mark.usefixtures("counted_logins")
async def test_a_home_that_is_read_only(project: Project, cache: Path) -> None:
    with unwritable(project.lab, cache) as seen:
        await cannot_store(
            project, "Read-only file system" if os.geteuid() == 0 else "Permission denied"
        )
        assert list(seen.iterdir()) == [seen / "jobs"]


async def test_another_directory_does_for_a_home_that_is_read_only(
    project: Project, cache: Path
) -> None:
    project.configure('[cluster]\ndirectory = "$HOME/scratch of mine/.tk"\n')
    elsewhere = project.lab.home / "scratch of mine" / ".tk"
    with unwritable(project.lab, cache) as seen:
        await project.up("node1")
        assert "hello" in (await project.tk("run", "echo", "hello")).out
        checks = (await project.tk("doctor", "--json", code=None)).json["checks"]
        (home,) = [one for one in checks if one["name"] == "home"]
        assert home["status"] == "ok" and str(elsewhere) in home["found"]
        assert list(seen.rglob("*")) == [seen / "jobs"]
    assert list(elsewhere.glob("agent-*.zip")) and list(elsewhere.glob("jobs/*.log"))
    assert elsewhere.stat().st_mode & 0o777 == 0o700
    await project.tk("down")
    shutil.rmtree(elsewhere.parent)


@pytest.mark.parametrize(
    "directory, why",
    [
        ("$TK_NO_SUCH_VARIABLE/tk", "$TK_NO_SUCH_VARIABLE is not set there"),
        ("$SHLVL/tk", "no absolute path"),
        ("~/open", "others may write to"),
        ("/etc", "/etc belongs to another user" if os.geteuid() else None),
    ],
)
async def test_a_directory_that_tk_may_not_use(
    project: Project, directory: str, why: str | None
) -> None:
    if why is None:
        pytest.skip("root owns every directory of this machine")
    project.configure(f'[cluster]\ndirectory = "{directory}"\n')
    opened = project.lab.home / "open"
    opened.mkdir()
    opened.chmod(0o770)
    try:
        line = await refused(
            project, "up", code=ExitCode.ALLOCATION, says=f"can't prepare {directory} on login"
        )
    finally:
        opened.rmdir()
    assert why in line


@pytest.mark.root
@pytest.mark.usefixtures("counted_logins")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small file system")
async def test_a_home_that_is_full(project: Project, cache: Path) -> None:
    with small_file_system(project.lab, cache) as seen:
        await cannot_store(project, "No space left on device")
        assert list(seen.iterdir()) == [seen / "jobs"], "what did not fit is still there"


async def test_the_agent_is_compiled_once_for_the_starts_to_come(
    project: Project, cache: Path
) -> None:
    await project.up("node1")
    await eventually(lambda: list(cache.glob("agent-*-*.zip")), "the byte code")
    (compiled,) = cache.glob("agent-*-*.zip")
    assert compiled.stat().st_mode & 0o777 == 0o600
    await project.tk("down")
    await project.up("node1")
    await project.loop("python", "2.py")
    assert [one.argv for one in project.cluster_processes() if str(compiled) in one.argv]
    kinds = sorted(path.suffix for path in cache.glob("*agent-*"))
    assert kinds == [".lease", ".zip", ".zip"], "the zip, its byte code, nothing unfinished"
    await project.tk("down")


async def test_unmounting_what_is_not_mounted(project: Project) -> None:
    directory = project.base / "plain"
    directory.mkdir()
    for path in (directory, project.base / "nowhere"):
        says = f"no sshfs is mounted at {path}"
        await refused(project, "umount", str(path), code=ExitCode.USAGE, says=says)
