"""The transfer of a mirror without an agent: rsync, tar, or none at all."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.test_mirror_tar import TARS, odd_tree
from tests.support.far_path import far_path
from tests.support.mirror_rig import Rig, needs_rsync
from tests.support.mirror_sshd import Sshd
from tunnelkit.errors import MissingProgram
from tunnelkit.mirror.remote.root import RemoteRoot
from tunnelkit.mirror.transfer.choose import choose_transfer
from tunnelkit.mirror.transfer.tar import TarTransfer

pytestmark = [pytest.mark.slow, needs_rsync]  # and its sshd


async def test_neither_rsync_nor_tar(rsync_rig: Rig, sshd: Sshd, tmp_path: Path) -> None:
    with far_path(sshd, tmp_path / "bin", without=("rsync", "tar")):
        with pytest.raises(MissingProgram, match="no way to send files") as caught:
            await rsync_rig.started()
        assert "no rsync" in (caught.value.cause or "")
        assert "no tar" in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("openrsync: protocol version 29\nrsync version 2.6.9 compatible", "only openrsync"),
        ("rsync  version 2.6.9  protocol version 29", "only rsync 2.6"),
        (None, "no rsync"),
    ],
)
async def test_the_rsync_of_this_computer_won_t_do(
    rsync_rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, why: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    if version is not None:
        (programs / "rsync").write_text(f"#!/bin/sh\ncat <<'E'\n{version}\nE\n")
        (programs / "rsync").chmod(0o755)
    ssh = shutil.which("ssh")
    assert ssh is not None
    for program in (ssh, "/bin/sh", "/bin/cat"):
        (programs / Path(program).name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    odd_tree(rsync_rig.local)
    said: list[str] = []
    await rsync_rig.started(say=said.append)
    assert said == [f"mirror: {why} on this computer: sending by tar"]
    assert rsync_rig.equal()


async def test_an_rsync_there_that_won_t_do(rsync_rig: Rig, sshd: Sshd, tmp_path: Path) -> None:
    said: list[str] = []
    root = str(rsync_rig.far)
    rsync = "rsync  version 2.6.9  protocol version 29"
    target = RemoteRoot(root, root, fresh=True, has_stat=True, rsync=rsync, tar=TARS["tar"])
    transfer = await choose_transfer(
        rsync_rig.remote, str(rsync_rig.local), target, say=said.append
    )
    assert isinstance(transfer, TarTransfer)
    assert said == ["mirror: only rsync 2.6 on 127.0.0.1: sending by tar"]


async def test_no_python_there(rsync_rig: Rig, sshd: Sshd, tmp_path: Path) -> None:
    """Fault 27: the mirror needs no Python over there, by rsync or without."""
    pythons = tuple(name for name in os.listdir("/usr/bin") if name.startswith("python"))
    odd_tree(rsync_rig.local)
    with far_path(sshd, tmp_path / "bin", without=(*pythons, Path(sys.executable).name)):
        found = await rsync_rig.remote.run(["sh", "-c", "command -v python3 python || echo none"])
        assert found.stdout == b"none\n"
        mirror = await rsync_rig.started()
        rsync_rig.write("a/b/plain.txt", "changed\n")
        report = await mirror.barrier(30)
        assert report.proven == 0
        assert rsync_rig.equal()
