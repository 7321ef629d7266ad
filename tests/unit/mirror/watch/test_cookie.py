"""Cookies of the watch: where they lie, that nobody mirrors them, that none stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import Scanner
from tunnelkit.mirror.watch import cookie


def test_in_git_where_there_is_one(tmp_path: Path) -> None:
    assert Path(cookie.place(str(tmp_path))).parent == tmp_path
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    assert Path(cookie.place(str(tmp_path))).parent == tmp_path
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").mkdir()
    assert Path(cookie.place(str(tmp_path))).parent == tmp_path / ".git"


def test_not_behind_a_symlink_which_no_watch_follows(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.git").symlink_to(tmp_path / "elsewhere")
    assert Path(cookie.place(str(tmp_path / "root"))).parent == tmp_path / "root"


def test_git_does_not_mind(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    cookie.write(cookie.place(str(tmp_path)))
    for command in (["status", "--porcelain"], ["fsck", "--strict"]):
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *command], capture_output=True, check=True
        )
        assert b"cookie" not in done.stdout + done.stderr


@pytest.mark.parametrize("rules", ["", "!*\n", "!.tk-cookie-1-2\n!.tk-part-3\n!.git/\n"])
def test_never_mirrored_whatever_the_rules_say(tmp_path: Path, rules: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for directory in (tmp_path, tmp_path / "sub", tmp_path / ".git"):
        (directory / ".tk-cookie-1-2").touch()
        (directory / ".tk-part-3").touch()
    (tmp_path / ".tkignore").write_text(rules)
    scan = Scanner(str(tmp_path), IgnoreRules.from_exclude(["!.tk-*"])).scan()
    assert not [path for path in scan.entries if ".tk-cookie" in path or ".tk-part" in path]
    rule = IgnoreRules().rule_for("a/.tk-part-3", ".tk-part-3", False)
    assert str(rule) == "tk: .tk-part-*"


def test_leftovers_are_swept_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for directory in (tmp_path, tmp_path / ".git"):
        (directory / ".tk-cookie-1-2").touch()
        (directory / "kept").touch()
    cookie.sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".git", "kept"]
    assert os.listdir(tmp_path / ".git") == ["kept"]


def test_a_cookie_is_private_and_new(tmp_path: Path) -> None:
    path = cookie.place(str(tmp_path))
    cookie.write(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert cookie.is_cookie(path)
    with pytest.raises(FileExistsError):
        cookie.write(path)
    cookie.remove(path)
    cookie.remove(path)
