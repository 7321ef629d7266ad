"""Files of repositories: names that git and file systems take for one's, and bare ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.mirror.transfer.repository_files import unasked


@pytest.mark.parametrize(
    ("path", "wanted", "is_unasked"),
    [
        (".git/config", "", True),
        ("out/.git/config", "out", True),
        ("out/lib/.git", "out", True),
        ("out/.Git/config", "out", True),
        ("out/.git::$INDEX_ALLOCATION/config", "out", True),
        ("out/.gi\ufefft ./config", "out", True),
        ("out/GIT~1/config", "out", True),
        ("out/.jj/repo/config.toml", "out", True),
        ("out/.git/config", "out/.git", False),
        ("out/.git/config", "out/.git/config", False),
        (".git/modules/a/.git/config", ".git", True),
        ("out/.gitignore", "out", False),
        ("out/.github/x", "out", False),
        ("out/git/x", "out", False),
        ("out/HEAD", "out", False),
    ],
)
def test_names(tmp_path: Path, path: str, wanted: str, is_unasked: bool) -> None:
    assert unasked(str(tmp_path), [path], [wanted]) == ({path} if is_unasked else set())


def test_a_bare_repository(tmp_path: Path) -> None:
    paths = {"x/r/Head", "x/r/objects", "x/r/refs/a", "x/r/hooks/b/c", "x/HEAD", "x/refs/a", "y"}
    bare = {path for path in paths if path.startswith("x/r/")}
    assert unasked(str(tmp_path), paths, [""]) == bare
    assert unasked(str(tmp_path), paths, ["x/r"]) == bare
    assert unasked(str(tmp_path), paths, ["", "x/r/hooks"]) == bare - {"x/r/hooks/b/c"}


@pytest.mark.parametrize("wanted", [".git", "lib/.git"])
def test_one_that_is_asked_for_comes_whole(tmp_path: Path, wanted: str) -> None:
    names = ("HEAD", "config", "objects/ab/x", "refs/heads/main", "hooks/pre-push",
             "modules/m/HEAD", "modules/m/objects/x", "modules/m/refs/heads/main")  # fmt: skip
    paths = {f"{wanted}/{name}" for name in names}
    assert unasked(str(tmp_path), paths, [wanted]) == set()
    assert unasked(str(tmp_path), paths, ["lib", ""]) == paths
    (tmp_path / wanted / "objects").mkdir(parents=True)
    (tmp_path / wanted / "refs").mkdir()
    (tmp_path / wanted / "HEAD").touch()
    assert unasked(str(tmp_path), [f"{wanted}/config"], [wanted]) == set()


def test_a_bare_repository_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "r/objects").mkdir(parents=True)
    (tmp_path / "r/refs").mkdir()
    assert unasked(str(tmp_path), ["r/config"], ["r"]) == set()
    (tmp_path / "r/HEAD").touch()
    assert unasked(str(tmp_path), ["r/config", "s/config"], ["r", "s"]) == {"r/config"}
