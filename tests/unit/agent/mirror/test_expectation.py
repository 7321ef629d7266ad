"""Batches of the mirror that meet what is there: known, edited, or of another kind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.unit.agent.mirror_side import (
    MTIME_NS,
    Side,
    content,
    delete,
    directory,
    file,
    left,
    link,
    meta,
    rmdir,
    sha,
    tree_of,
)
from tunnelkit.agent.mirror.dirfd_tree import stamp_of


def test_known_by_its_stamp_it_is_replaced_unread(side: Side, root: Path) -> None:
    side.batch(file("a", b"1"))
    stamp = side.proof["a"]
    expect = {"stamp": stamp, "size": 1, "mtime_s": None, "digests": []}
    assert side.batch(file("a", b"2", expect)) == {}
    assert tree_of(root) == {"a": b"2"}


def test_known_by_size_and_time(side: Side, root: Path) -> None:
    side.batch(file("a", b"1"))
    seconds = MTIME_NS // 10**9
    expect = {"stamp": "", "size": 1, "mtime_s": seconds, "digests": []}
    assert side.batch(file("a", b"2", expect)) == {}
    assert side.batch(file("a", b"3", {**expect, "mtime_s": seconds + 1}))["a"][0] == "conflict"
    assert side.batch(file("a", b"4", {**expect, "mtime_s": None})) == {}
    assert tree_of(root) == {"a": b"4"}


def test_known_by_content(side: Side, root: Path) -> None:
    (root / "a").write_bytes(b"older")
    assert side.batch(file("a", b"new", content(b"old", b"older"))) == {}
    # The new content itself is no conflict.
    assert side.batch(file("a", b"new", content(b"old"), mode=0o600)) == {}
    assert tree_of(root) == {"a": b"new"}
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize("expect", ["stamp", "content", None])
def test_an_edit_there_is_a_conflict_and_stays(side: Side, root: Path, expect: str | None) -> None:
    (root / "a").write_bytes(b"ours")
    known = {"stamp": left(root / "a", sha(b"ours")), "content": content(b"ours")}.get(str(expect))
    (root / "a").write_bytes(b"edit")
    results = side.batch(file("a", b"new", known), file("b", b"b"), delete("gone", known))
    assert results == {"a": ["conflict", results["a"][1]]}
    assert tree_of(root) == {"a": b"edit", "b": b"b"}
    assert list(side.proof) == ["b"]


def test_a_missing_file_is_never_a_conflict(side: Side, root: Path) -> None:
    assert side.batch(file("a", b"1", content(b"0")), file("d/a", b"1", content(b"0"))) == {}
    assert tree_of(root) == {"a": b"1", "d": None, "d/a": b"1"}


def test_backup_keeps_what_gives_way(side: Side, root: Path) -> None:
    (root / "d").mkdir()
    (root / "d/a").write_bytes(b"edit")
    inode = (root / "d/a").stat().st_ino
    (root / "same").write_bytes(b"new")
    same = (root / "same").stat()
    results = side.batch(
        file("d/a", b"new", content(b"old"), unlike="backup"),
        file("same", b"new", None, unlike="backup", mode=0o640),
        file("fresh", b"new", None, unlike="backup"),
    )
    assert {path: state for path, (state, _) in results.items()} == {
        "d/a": "replaced",
        "same": "same",
    }
    kept = root / ".tk-replaced/20261121T181500Z"
    assert side.committed["replaced_dir"] == str(kept)
    assert (kept / "d/a").read_bytes() == b"edit"
    assert (kept / "d/a").stat().st_ino == inode
    assert (root / "d/a").read_bytes() == b"new"
    assert (root / "same").stat().st_ino == same.st_ino
    assert stat.S_IMODE((root / "same").stat().st_mode) == 0o640
    assert set(side.proof) == {"d/a", "same", "fresh"}


def test_a_second_backup_does_not_overwrite_the_first(side: Side, root: Path) -> None:
    for edit in (b"edit 1", b"edit 2", b"edit 3"):
        (root / "a").write_bytes(edit)
        assert side.batch(file("a", b"new", content(b"new"), unlike="backup"))["a"][0] == "replaced"
    (root / "b").write_bytes(b"edit 4")
    assert side.batch(delete("b", None, unlike="backup"))["b"][0] == "replaced"
    # A file of that name is where a directory is needed now.
    (root / "a").unlink()
    (root / "a").mkdir()
    (root / "a/x").write_bytes(b"edit 5")
    assert side.batch(file("a/x", b"new", None, unlike="backup"))["a/x"][0] == "replaced"
    kept = sorted(data for data in tree_of(root / ".tk-replaced").values() if data)
    assert kept == [b"edit 1", b"edit 2", b"edit 3", b"edit 4", b"edit 5"]


def test_backup_does_not_follow_a_link(side: Side, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (root / ".tk-replaced").symlink_to(outside)
    (root / "a").write_bytes(b"edit")
    assert side.batch(file("a", b"new", content(b"old"), unlike="backup"))["a"][0] == "blocked"
    assert (root / "a").read_bytes() == b"edit"
    assert list(outside.iterdir()) == []


def test_deletes(side: Side, root: Path) -> None:
    for name in ("ours", "edited", "unknown", "link"):
        (root / name).write_bytes(b"1")
    (root / "link").unlink()
    (root / "link").symlink_to("x")
    (root / "edited").write_bytes(b"edit")
    (root / "dir").mkdir()
    results = side.batch(
        delete("ours", content(b"1")),
        delete("edited", content(b"1")),
        delete("unknown", None),
        delete("link", content(b"x")),
        delete("dir", content(b"1")),
        delete("not-there", content(b"1")),
        delete("not/there", content(b"1")),
        delete("edited/not", content(b"1")),
    )
    assert {path: state for path, (state, _) in results.items()} == {
        "edited": "kept",
        "unknown": "kept",
        "dir": "kept",
    }
    assert tree_of(root) == {"edited": b"edit", "unknown": b"1", "dir": None}


def test_directories_go_only_if_empty(side: Side, root: Path) -> None:
    (root / "a/b/c").mkdir(parents=True)
    (root / "full").mkdir()
    (root / "full/out.npy").write_bytes(b"1")
    (root / "a/b/x").write_bytes(b"1")
    assert (
        side.batch(
            rmdir("a"), rmdir("a/b"), rmdir("full"), rmdir("a/b/c"), delete("a/b/x", content(b"1"))
        )
        == {}
    )
    assert tree_of(root) == {"full": None, "full/out.npy": b"1"}


def test_meta(side: Side, root: Path) -> None:
    side.batch(file("a", b"1"), file("b", b"1"), file("c", b"1"))
    known = {name: left(root / name, sha(b"1")) for name in "abc"}
    (root / "b").write_bytes(b"edit")
    inode = (root / "a").stat().st_ino
    results = side.batch(
        meta("a", b"1", known["a"], mode=0o755),
        meta("b", b"1", known["b"], mode=0o755),
        meta("c", b"2", left(root / "c", sha(b"1"), sha(b"2")), mode=0o755),
        meta("d", b"1", known["c"], mode=0o755),
    )
    states = {path: state for path, (state, _) in results.items()}
    assert states == {"b": "conflict", "c": "absent", "d": "absent"}
    assert (root / "a").stat().st_ino == inode
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "c").stat().st_mode) == 0o644
    assert list(side.proof) == ["a"]


def test_links(side: Side, root: Path) -> None:
    assert side.batch(link("l", "nowhere/at all")) == {}
    assert os.lstat(root / "l").st_mtime_ns == MTIME_NS
    assert side.proof == {"l": stamp_of(os.lstat(root / "l"))}
    assert side.batch(link("l", "second", content(b"nowhere/at all"))) == {}
    assert os.readlink(root / "l") == "second"
    assert side.batch(link("l", "third", content(b"first")))["l"][0] == "conflict"
    assert side.batch(file("l", b"a file now", content(b"second"))) == {}
    assert side.batch(link("l", "and back", content(b"a file now"))) == {}
    assert os.readlink(root / "l") == "and back"


# -- changes of kind ------------------------------------------------------


def test_a_file_becomes_a_directory(side: Side, root: Path) -> None:
    (root / "x").write_bytes(b"1")
    results = side.batch(
        file("x/y/z", b"2"), directory("x"), directory("x/y"), delete("x", content(b"1"))
    )
    assert results == {}
    assert tree_of(root) == {"x": None, "x/y": None, "x/y/z": b"2"}


def test_a_directory_becomes_a_file(side: Side, root: Path) -> None:
    (root / "x/y").mkdir(parents=True)
    (root / "x/y/z").write_bytes(b"1")
    results = side.batch(
        file("x", b"2", content(b"0")), delete("x/y/z", content(b"1")), rmdir("x"), rmdir("x/y")
    )
    assert results == {}
    assert tree_of(root) == {"x": b"2"}
    assert list(side.proof) == ["x"]


def test_a_directory_becomes_a_link_and_a_link_a_directory(side: Side, root: Path) -> None:
    (root / "x").mkdir()
    (root / "x/z").write_bytes(b"1")
    (root / "l").symlink_to("x")
    results = side.batch(
        link("x", "l"),
        delete("x/z", content(b"1")),
        rmdir("x"),
        delete("l", content(b"x")),
        file("l/new", b"2"),
    )
    assert results == {}
    assert tree_of(root) == {"x": ("link", "l"), "l": None, "l/new": b"2"}


def test_a_directory_with_foreign_files_stays(side: Side, root: Path) -> None:
    (root / "x").mkdir()
    (root / "x/z").write_bytes(b"1")
    (root / "x/out").write_bytes(b"result")
    results = side.batch(file("x", b"2", content(b"0")), delete("x/z", content(b"1")), rmdir("x"))
    assert results["x"][0] == "failed"
    assert "is a directory with files that tk didn't send" in results["x"][1]
    assert (root / "x/out").read_bytes() == b"result"


def test_an_edited_file_is_not_made_a_directory(side: Side, root: Path) -> None:
    (root / "x").write_bytes(b"edit")
    results = side.batch(directory("x"), file("x/a", b"2"), delete("x", content(b"1")))
    assert {path: state for path, (state, _) in results.items()} == {
        "x": "kept",
        "x/a": "blocked",
    }
    assert tree_of(root) == {"x": b"edit"}
