"""A home that is read-only on the node alone, as on clusters that protect it there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.tkrig import Project
from tunnelkit import lab as tk_lab
from tunnelkit.errors import AllocationError
from tunnelkit.lab import LabInfo

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount on the node alone"),
]


@contextmanager
def _read_only(pid: int, path: Path) -> Iterator[None]:
    """`path` can't be written by what that process starts from now on."""
    there = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--"]
    bound = [*there, "mount", "--bind", str(path), str(path)]
    if subprocess.run(bound, capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount (a container without CAP_SYS_ADMIN)")
    try:
        subprocess.run([*there, "mount", "-o", "remount,bind,ro", str(path)], check=True)
        yield
    finally:
        subprocess.run([*there, "umount", "-l", str(path)], check=True)


@pytest.fixture
def home(slurm_lab: LabInfo) -> Iterator[Path]:
    """The cluster's home, which node1 can't write: neither its jobs nor who enters by ssh."""
    daemons = tk_lab.status(slurm_lab.dir).daemons
    pids = [one.pid for one in daemons if one.name in ("slurmd-node1", "sshd-node1")]
    assert len(pids) == 2
    namespaces = {os.readlink(f"/proc/{pid}/ns/mnt") for pid in (*pids, os.getpid())}
    if len(namespaces) < 3:
        pytest.skip("the lab's hosts share this machine's mounts")
    with ExitStack() as mounted:
        for pid in pids:
            mounted.enter_context(_read_only(pid, slurm_lab.home))
        yield slurm_lab.home


async def test_a_home_that_the_node_alone_cannot_write_is_named(
    project: Project, home: Path
) -> None:
    done = await project.tk("up", "node1", code=int(AllocationError.exit_code))
    last = done.err.splitlines()[-1]
    assert "read-only or full on the node" in last
    assert "[cluster] directory" in last
    await project.nothing_left()


async def test_another_directory_does_for_it(project: Project, home: Path) -> None:
    elsewhere = project.base / "scratch"
    elsewhere.mkdir(mode=0o700)
    project.configure(
        f'[cluster]\ndirectory = "{elsewhere}/.tk"\n[mirror]\nremote = "{elsewhere}/code"\n'
    )
    await project.up("node1")
    probe = 'touch "$HOME/x" 2>/dev/null && echo writable || echo read-only; cat 2.py | wc -c'
    said = (await project.tk("run", "sh", "-c", probe)).out.split()
    assert said == ["read-only", str((project.dir / "2.py").stat().st_size)]
    await project.tk("sync", "--wait")
    await project.tk("down")
    shutil.rmtree(elsewhere)
