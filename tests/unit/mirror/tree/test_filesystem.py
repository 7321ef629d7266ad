"""Which directories are on a disk of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tunnelkit.mirror.tree.filesystem import is_local, remote_mounts

TABLE = r"""22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /home rw shared:2 - nfs4 server:/home rw
31 30 0:26 / /home/ann/scratch\040disk rw - xfs /dev/sdb1 rw
32 22 0:27 / /mnt/far rw - fuse.sshfs login:/ rw,user_id=0
33 22 0:28 / /work rw - tmpfs tmpfs rw
34 22 0:29 / /work rw - cifs //server/work rw
short
"""


@pytest.mark.parametrize(
    ("directory", "local"),
    [
        ("/srv/project", True),
        ("/", True),
        ("/home/ann/project", False),
        ("/home/ann/scratch disk", True),
        ("/home/ann/scratch disk/a/b", True),
        ("/home/ann/scratch disks", False),
        ("/homes", True),
        ("/mnt/far/project", False),
        ("/work/project", False),  # what was mounted last is seen
    ],
)
def test_by_the_mount_table(tmp_path: Path, directory: str, local: bool) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert is_local(directory, table) is local


def test_where_there_is_no_table_nothing_is_sure(tmp_path: Path) -> None:
    assert not is_local("/", tmp_path / "none")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's table")
def test_proc_is_no_disk() -> None:
    assert not is_local("/proc/self")


def test_what_is_mounted_below_from_elsewhere(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert remote_mounts("/home/ann", table) == []
    assert sorted(remote_mounts("/", table)) == ["home", "mnt/far", "work"]
    assert remote_mounts("/mnt", table) == ["far"]
    assert remote_mounts("/mnt/far", table) == []
