"""Why a look lacks what is on record: deleted, left out now, or only not there in that moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.mirror.passes.local_changes import classify_missing
from tunnelkit.mirror.tree.ignore import VENV_MARK, IgnoreRules
from tunnelkit.mirror.tree.scanner import Scan, Scanner
from tunnelkit.mirror.tree.symlinks import IGNORE, KEEP, SymlinkPolicy


def look(root: Path, *exclude: str, symlinks: str = KEEP) -> Scan:
    links = SymlinkPolicy(symlinks)
    rules = IgnoreRules.from_exclude(exclude)
    return Scanner(str(root), rules, links.judge, kinds=links.kinds).scan()


def classified(root: Path, scan: Scan, *paths: str) -> dict[str, set[str]]:
    absent = [path for path in paths if path not in scan.entries]
    found = classify_missing(str(root), absent, scan)._asdict()
    return {fate: paths for fate, paths in found.items() if paths}


def test_what_is_gone_was_deleted(tmp_path: Path) -> None:
    (tmp_path / "was a directory").write_text("a file")
    gone = ["a.py", "d/a.py", "was a directory/a.py"]
    assert classified(tmp_path, look(tmp_path), *gone) == {"deleted": set(gone)}


@pytest.mark.parametrize("path", ["a.py", "d/a.py", "d/new/a.py", ".gitignore"])
def test_what_has_come_back_since_is_looked_at_again(tmp_path: Path, path: str) -> None:
    (tmp_path / "d").mkdir()
    scan = look(tmp_path)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("saved anew")
    assert classified(tmp_path, scan, path) == {"back": {path}}
    (tmp_path / path).unlink()
    (tmp_path / path).symlink_to("elsewhere")
    assert classified(tmp_path, scan, path) == {"back": {path}}
    os.unlink(tmp_path / path)
    (tmp_path / path).mkdir()
    assert classified(tmp_path, scan, path) == {"back": {path}}


def test_a_directory_that_goes_during_the_scan_is_scanned_again(tmp_path: Path) -> None:
    """A part of its files would be few enough to be deleted there unasked."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/seen.py").touch()
    scan = look(tmp_path)
    (tmp_path / "src").rename(tmp_path / "trash")
    assert classified(tmp_path, scan, "src/missed.py") == {"back": {"src/missed.py"}}
    assert classified(tmp_path, look(tmp_path), "src/missed.py") == {"deleted": {"src/missed.py"}}


@pytest.mark.parametrize(("symlinks", "fate"), [(IGNORE, "ignored"), (KEEP, "deleted")])
def test_a_directory_that_has_become_a_symlink_hides_no_file(
    tmp_path: Path, symlinks: str, fate: str
) -> None:
    """Its files are where it leads to, and are not back."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.csv").write_text("1")
    root = tmp_path / "root"
    root.mkdir()
    (root / "data").symlink_to(tmp_path / "elsewhere")
    assert classified(root, look(root, symlinks=symlinks), "data/x.csv") == {fate: {"data/x.csv"}}


def test_what_a_rule_leaves_out_now_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.tkignore").write_text(".tkignore\n*.bin\n")
    here = ["a.log", "out", "out/deep", "out/deep/a.py", "sub/x.bin"]
    for path in here:
        if not (tmp_path / path).exists():
            (tmp_path / path).write_text("x")
    scan = look(tmp_path, "*.log", "out/")
    assert classified(tmp_path, scan, *here, "sub/.tkignore") == {
        "ignored": {*here, "sub/.tkignore"}
    }
    assert classified(tmp_path, scan, "out/gone.py") == {"deleted": {"out/gone.py"}}


def test_what_is_in_a_virtual_environment_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").write_text("x")
    (tmp_path / "env" / VENV_MARK).write_text("home = /usr\n")
    here = ["env", "env/bin", "env/bin/python", f"env/{VENV_MARK}"]
    assert classified(tmp_path, look(tmp_path), *here) == {"ignored": set(here)}


def test_what_is_never_mirrored_is_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "was a file")
    (tmp_path / "link").symlink_to("was a file")
    assert classified(tmp_path, look(tmp_path), "was a file") == {"ignored": {"was a file"}}
    scan = look(tmp_path, symlinks=IGNORE)
    assert classified(tmp_path, scan, "link", "was a file") == {"ignored": {"link", "was a file"}}


def test_nobody_can_tell_of_what_is_in_a_closed_directory(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    scan = look(tmp_path)
    scan.unreadable["closed"] = "Permission denied"  # root would read it
    assert classified(tmp_path, scan, "closed/a.py") == {}
