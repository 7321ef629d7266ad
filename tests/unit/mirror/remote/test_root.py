"""Directories that must not be mirrored, or not be mirrored into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.remote.root import check_local_dir, check_remote_dir


@pytest.mark.parametrize(
    "remote_dir",
    [
        "",
        " ",
        "/",
        "//",
        "/.",
        "~",
        "~/",
        "~/.",
        "~//.",
        ".",
        "./",
        "..",
        "~/..",
        "~/a/../..",
        "a/..",
        "/home/me/..",
        "$HOME",
        "$HOME/x",
        "~other",
        "~other/x",
        "a\nb",
        "/etc",
        "/tmp/",
        "/home",
    ],
)
def test_refused_by_name(remote_dir: str) -> None:
    with pytest.raises(MirrorError, match="can't be mirrored into") as caught:
        check_remote_dir(remote_dir)
    assert caught.value.cause
    assert caught.value.hint


@pytest.mark.parametrize(
    ("remote_dir", "plain"),
    [
        ("~/tk/x", "~/tk/x"),
        ("~//tk/./x/", "~/tk/x"),
        ("tk/x", "~/tk/x"),
        ("/scratch/me/x/", "/scratch/me/x"),
        ("/scratch//me", "/scratch/me"),
        ("~/-x", "~/-x"),
        ("~/a b'c", "~/a b'c"),
        ("~/..a", "~/..a"),
    ],
)
def test_plain_form(remote_dir: str, plain: str) -> None:
    assert check_remote_dir(remote_dir) == plain


def test_local_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "people" / "me"
    project = home / "project"
    project.mkdir(parents=True)
    (home / "loop").symlink_to(".")
    (home / "file").touch()
    monkeypatch.setenv("HOME", str(home))
    assert check_local_dir("~/project") == project.resolve()
    for bad in ("/", str(home), str(home / "loop"), str(tmp_path / "people"), "~"):
        with pytest.raises(MirrorError, match="can't be mirrored"):
            check_local_dir(bad)
    for bad in (str(home / "file"), str(home / "missing")):
        with pytest.raises(MirrorError, match="can't be mirrored"):
            check_local_dir(bad)
