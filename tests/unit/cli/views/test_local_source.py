"""Lines of the laptop's files: as they are now, and only of plain files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.cli.views.local_source import lines_of


def test_a_saved_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("a = 1\nb = 2\n")
    assert lines_of(str(file)) == ["a = 1", "b = 2"]
    newer = tmp_path / "new"
    newer.write_text("a = 1\nb = 3\n")
    newer.replace(file)
    assert lines_of(str(file)) == ["a = 1", "b = 3"]


@pytest.mark.parametrize("name", ["pipe", "zeros", "directory", "none", "long", "nul\0"])
def test_what_is_no_source_is_not_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "directory").mkdir()
    with open(tmp_path / "long", "wb") as file:
        file.truncate((4 << 20) + 1)
    assert lines_of(str(tmp_path / name)) is None


def test_a_relative_name_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("a\n")
    assert lines_of("a.py") is None
