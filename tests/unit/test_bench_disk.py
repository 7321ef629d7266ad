"""Where scripts/bench puts its files: on what a laptop's disk is like."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from benchlib import disk


def _mounts(tmp_path: Path, kind: str, source: str) -> Path:
    info = os.stat(tmp_path)
    device = f"{os.major(info.st_dev)}:{os.minor(info.st_dev)}"
    file = tmp_path / "mountinfo"
    file.write_text(
        "20 1 0:19 / /proc rw - proc proc rw\n"
        f"21 1 {device} / / rw,relatime shared:1 - {kind} {source} rw\n"
    )
    return file


@pytest.mark.parametrize(
    ("kind", "journals", "lacks"),
    [
        ("ext4", ["vda-8"], False),
        ("ext4", ["vdb-8"], True),
        ("ext4", [], True),
        ("xfs", [], False),
        ("overlay", [], False),
    ],
)
def test_a_journal_is_told(tmp_path: Path, kind: str, journals: list[str], lacks: bool) -> None:
    jbd2 = tmp_path / "jbd2"
    for name in journals:
        (jbd2 / name).mkdir(parents=True)
    mounts = _mounts(tmp_path, kind, "/dev/vda")
    assert disk.lacks_journal(str(tmp_path), mounts=mounts, jbd2=jbd2) is lacks


def test_a_chosen_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    with disk.place(str(tmp_path)) as found:
        assert found == str(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="no e2fsprogs here")
def test_an_image_has_a_journal_and_goes(tmp_path: Path) -> None:
    if not Path("/dev/loop-control").exists():
        pytest.skip("no loop devices here")
    with disk.image(tmp_path) as mounted:
        assert os.path.ismount(mounted)
        assert not disk.lacks_journal(str(mounted))
        (mounted / "file").write_text("x")
        # Sparse, whatever its size says.
        assert sum(one.stat().st_blocks for one in mounted.parent.glob("image")) < 4 << 21
    assert list(tmp_path.iterdir()) == []
