"""Planned changes are written whole, with mode and links kept, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tunnelkit.errors import ConfigError, DebugError
from tunnelkit.file_changes import FileChange, apply


def test_status() -> None:
    path = Path("x")
    assert FileChange(path, None, b"").status == "created"
    assert FileChange(path, b"a", b"b").status == "updated"
    assert FileChange(path, b"a", b"a").status == "already right"


def test_mode_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o640)
    apply([FileChange(path, b"old", b"new")], within=tmp_path)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["f"]


def test_a_new_file_takes_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        apply([FileChange(tmp_path / "d" / "f", None, b"new")], within=tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "d" / "f").stat().st_mode) == 0o640


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target = tmp_path / "real" / "f"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("real/f")
    apply([FileChange(link, b"old", b"new")], within=tmp_path)
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_a_dangling_link_makes_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("real")
    apply([FileChange(link, None, b"new")], within=tmp_path)
    assert link.is_symlink() and (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("there", [True, False])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, there: bool) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    if there:
        outside.write_bytes(b"old")
    (folder / "link").symlink_to(outside)
    before = b"old" if there else None
    with pytest.raises(DebugError, match="link out of"):
        apply([FileChange(folder / "link", before, b"new")], within=folder)
    assert outside.exists() == there


def test_what_changed_since_the_plan_is_not_overwritten(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    second.write_bytes(b"edited meanwhile")
    with pytest.raises(DebugError, match="changed meanwhile"):
        apply(
            [FileChange(first, None, b"new"), FileChange(second, b"old", b"new")], within=tmp_path
        )
    assert second.read_bytes() == b"edited meanwhile" and not first.exists()


def test_what_is_right_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"same")
    before = path.stat()
    apply([FileChange(path, b"same", b"same")], within=tmp_path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_write_protected_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(DebugError, match="write-protected"):
        apply([FileChange(path, b"old", b"new")], within=tmp_path)
    assert path.read_bytes() == b"old"


def test_a_directory_that_cant_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="file/f can't be"):
        apply(
            [FileChange(tmp_path / "file" / "f", None, b"new")], within=tmp_path, error=ConfigError
        )
