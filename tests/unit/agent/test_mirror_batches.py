"""Batches of the mirror on a real directory: what is visible after each, and what is told."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.mirror_side import (
    MTIME_NS,
    Side,
    Watcher,
    content,
    delete,
    directory,
    file,
    left,
    link,
    meta,
    parts_of,
    rmdir,
    sha,
    text,
    tree_of,
)
from tunnelkit.agent.tree import stamp_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def side(root: Path) -> Iterator[Side]:
    one = Side(root)
    yield one
    one.close()
    assert parts_of(root) == []


def test_a_file_arrives_whole_with_mode_and_time(side: Side, root: Path) -> None:
    assert side.batch(file("a.py", b"one\n", mode=0o751)) == {}
    state = os.lstat(root / "a.py")
    assert (root / "a.py").read_bytes() == b"one\n"
    assert (stat.S_IMODE(state.st_mode), state.st_mtime_ns) == (0o751, MTIME_NS)
    assert side.proof == {"a.py": stamp_of(state)}
    assert side.differ == {}
    assert side.committed["replaced_dir"] is None


def test_a_file_in_pieces(side: Side, root: Path) -> None:
    data = os.urandom(3_000_000)
    header, _ = file("big", data, more=True)
    side.begin()
    side.send(header, data[:1_000_000])
    side.send({"op": "data", "last": False}, data[1_000_000:2_000_000])
    side.send({"op": "data", "last": True}, data[2_000_000:])
    assert side.commit() == {}
    assert (root / "big").read_bytes() == data
    assert list(side.proof) == ["big"]


def test_the_stream_may_be_split_anywhere(side: Side, root: Path) -> None:
    from tunnelkit.mux.parcels import encode

    parcels = [
        encode({"op": "begin", "batch": 1}),
        encode(*file("d/a", b"12345")),
        encode(link("d/l", "a")),
        encode({"op": "commit", "batch": 1}),
    ]
    for byte in b"".join(parcels):
        assert side.feed(bytes([byte]))
    assert side.results == {}
    assert tree_of(root) == {"d": None, "d/a": b"12345", "d/l": ("link", "a")}


def test_what_changed_while_it_was_read_is_dropped(side: Side, root: Path) -> None:
    side.begin()
    side.send(*file("a", b"first piece", more=True))
    side.send({"op": "drop"})
    side.send(*file("b", b"other"))
    assert side.commit() == {}
    assert tree_of(root) == {"b": b"other"}


@pytest.mark.parametrize("more", [False, True])
def test_what_is_not_as_announced_fails_alone(side: Side, root: Path, more: bool) -> None:
    header, data = file("a", b"announced")
    side.begin()
    side.send({**header, "more": more}, b"different")
    if more:
        side.send({"op": "data", "last": True}, b"")
    side.send(*file("b", b"fine"))
    results = side.commit()
    assert results["a"][0] == "failed"
    assert tree_of(root) == {"b": b"fine"}
    assert data not in tree_of(root).values()


def test_one_that_never_ends_fails_alone(side: Side, root: Path) -> None:
    side.begin()
    side.send(*file("b", b"fine"))
    side.send(*file("a", b"only the beginn", more=True, size=100))
    assert side.commit()["a"][0] == "failed"
    assert tree_of(root) == {"b": b"fine"}


def test_abort_leaves_nothing(side: Side, root: Path) -> None:
    side.begin()
    side.send(directory("new"))
    side.send(*file("new/a", b"1"))
    side.send(*file("b", b"2"))
    side.send(*file("c", b"3", more=True))
    assert parts_of(root)
    side.send({"op": "abort", "batch": 1})
    assert tree_of(root) == {}
    assert side.batch(file("b", b"2")) == {}


def test_a_channel_cut_in_the_middle_of_a_file_leaves_nothing(root: Path) -> None:
    side = Side(root)
    side.begin()
    side.send(*file("deep/er/a", b"half", more=True))
    side.send(*file("b", b"2"))
    side.send(*file("c", b"half", more=True))
    assert len(parts_of(root)) >= 3
    side.close()
    assert tree_of(root) == {}


def test_directories_get_their_modes_and_need_not_come_first(side: Side, root: Path) -> None:
    side.batch(
        file("a/b/c", b"1"),
        directory("a/b", mode=0o500),
        directory("a", mode=0o750),
        directory("empty", mode=0o711),
    )
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("a", "a/b", "empty")}
    assert modes == {"a": 0o750, "a/b": 0o500, "empty": 0o711}
    (root / "a/b").chmod(0o700)


def test_a_directory_that_is_there_keeps_its_mode_unless_told(side: Side, root: Path) -> None:
    for name in ("kept", "told", "thought-new"):
        (root / name).mkdir(mode=0o700)
    results = side.batch(
        directory("kept", new=False, mode=0o755),
        directory("told", new=False, mode=0o755, chmod=True),
        directory("thought-new", new=True, mode=0o755),
        directory("missing", new=False, mode=0o750),
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
    assert results == {"thought-new": ["same", ""]}
    assert modes == {"kept": 0o700, "told": 0o755, "thought-new": 0o755, "missing": 0o750}


def test_a_groups_directory_stays_one(side: Side, root: Path) -> None:
    (root / "shared").mkdir()
    (root / "shared").chmod(0o2770)
    side.batch(directory("shared", mode=0o755), directory("shared/new", mode=0o755))
    assert stat.S_IMODE((root / "shared").stat().st_mode) == 0o2755
    assert stat.S_IMODE((root / "shared/new").stat().st_mode) == 0o2755


NAMES = [
    b"new\nline",
    b"-rf",
    b"--",
    b" ",
    b"a b\tc",
    b"\xff\xfe\x80",
    "naïve-日本".encode(),
    b"x" * 255,
    b"\xff" * 255,
    b".tk-",
    b"..a",
    b"a..",
    b"...",
    b"\\",
    b"'\"$(id)",
]


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_are_exact(side: Side, root: Path, name: bytes) -> None:
    path = text(name)
    assert side.batch(file(path, b"1")) == {}
    assert os.listdir(os.fsencode(root)) == [name]
    assert side.batch(file(path, b"2", content(b"1"))) == {}
    assert (root / os.fsdecode(name)).read_bytes() == b"2"
    assert side.batch(delete(path, content(b"2")), file(f"d-/{path}", b"3")) == {}
    assert os.listdir(os.fsencode(root / "d-")) == [name]
    assert list(side.proof) == [f"d-/{path}"]
    assert side.batch(directory("l"), link(f"l/{path}", path)) == {}
    assert os.readlink(os.fsencode(root) + b"/l/" + name) == name


@pytest.mark.parametrize(
    "path",
    ["", "/", "/etc/x", "..", "../x", "a/../../x", "a//b", "a/", ".", "./a", "a/./b", "a\0b"],
)
def test_paths_that_lead_out_end_the_channel(root: Path, path: str) -> None:
    for parcel in (file(path, b"1"), (link(path, "x"), b""), (delete(path, None), b"")):
        side = Side(root)
        side.begin()
        assert not side.send(*parcel)
        assert side.answers[-1]["error"] == "protocol"
        side.close()
    assert tree_of(root.parent) == {"root": None}


@pytest.mark.parametrize(
    "header",
    [
        {"op": "commit", "batch": 1},
        {"op": "file"},
        {},
        {"op": "unheard-of"},
        {"op": "begin", "replaced": "../x"},
    ],
)
def test_nonsense_ends_the_channel(root: Path, header: dict[str, object]) -> None:
    side = Side(root)
    assert not side.send(header)
    assert side.answers[-1]["error"] == "protocol"
    side.close()


# -- what was there -------------------------------------------------------


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


# -- attacks and races ----------------------------------------------------


def test_a_link_on_the_way_is_not_followed(side: Side, root: Path) -> None:
    outside = root.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "victim").write_bytes(b"safe")
    (root / "l").symlink_to(outside)
    results = side.batch(
        file("l/new", b"1"),
        file("l/deep/new", b"1"),
        file("l/victim", b"1", content(b"safe")),
        link("l/link", "x"),
        delete("l/victim", content(b"safe")),
        rmdir("l/deep"),
        directory("l/dir"),
        meta("l/victim2", b"safe", content(b"safe"), mode=0o777),
    )
    blocked = "on the cluster l is a symlink, which is not followed"
    assert all(result == ["blocked", blocked] for result in results.values()), results
    assert set(results) >= {"l/new", "l/deep/new", "l/victim", "l/link", "l/dir"}
    assert tree_of(outside) == {"deep": None, "victim": b"safe"}
    assert os.readlink(root / "l") == str(outside)


def test_a_parent_swapped_for_a_link_after_the_staging(side: Side, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "gone").write_bytes(b"1")
    (root / "d").mkdir()
    (root / "d/gone").write_bytes(b"1")
    side.begin()
    side.send(*file("d/a", b"1"))
    side.send(*file("d/new/b", b"1"))
    side.send(delete("d/gone", content(b"1")))
    side.send(link("d/l", "x"))
    (root / "d").rename(root / "moved")
    (root / "d").symlink_to(outside)
    results = side.commit()
    assert {state for state, _ in results.values()} == {"blocked"}
    assert tree_of(outside) == {"gone": b"1"}
    assert tree_of(root) == {"d": ("link", str(outside)), "moved": None, "moved/gone": b"1"}


def test_a_parent_swapped_for_another_directory(side: Side, root: Path) -> None:
    (root / "d").mkdir()
    side.begin()
    side.send(*file("d/a", b"1"))
    (root / "d").rename(root / "moved")
    (root / "d").mkdir()
    side.commit()
    assert side.results == {}
    assert tree_of(root) == {"d": None, "d/a": b"1", "moved": None}


def test_an_edit_between_check_and_rename_is_seen(side: Side, root: Path) -> None:
    (root / "a").write_bytes(b"ours")
    known = left(root / "a", sha(b"ours"))

    class EditsWhenItCloses:
        def __enter__(self) -> None:
            (root / "a").write_bytes(b"edit")
            (root / "b").write_bytes(b"appears")
            (root / "c").write_bytes(b"edit")

        def __exit__(self, *exc: object) -> None:
            pass

    (root / "c").write_bytes(b"ours")
    gone = left(root / "c", sha(b"ours"))
    side._batches._gate = EditsWhenItCloses()
    results = side.batch(file("a", b"new", known), file("b", b"new"), delete("c", gone))
    assert {path: state for path, (state, _) in results.items()} == {
        "a": "conflict",
        "b": "conflict",
        "c": "kept",
    }
    assert tree_of(root) == {"a": b"edit", "b": b"appears", "c": b"edit"}


def test_a_directory_that_appears_meanwhile_is_joined(side: Side, root: Path) -> None:
    side.begin()
    side.send(directory("p", mode=0o750))
    side.send(directory("p/sub", mode=0o555))
    for path in ("p/a", "p/b", "p/sub/c"):
        side.send(*file(path, b"new"))
    (root / "p/sub").mkdir(parents=True)
    (root / "p/b").write_bytes(b"foreign")
    (root / "p/own").write_bytes(b"foreign")
    results = side.commit()
    states = {path: state for path, (state, _) in results.items()}
    assert states == {"p": "same", "p/sub": "same", "p/b": "conflict"}
    found = tree_of(root / "p")
    assert found == {"a": b"new", "b": b"foreign", "own": b"foreign", "sub": None, "sub/c": b"new"}
    assert stat.S_IMODE((root / "p").stat().st_mode) == 0o750
    assert stat.S_IMODE((root / "p/sub").stat().st_mode) == 0o555
    assert set(side.proof) == {"p/a", "p/sub/c"}


def test_a_fifo_in_the_way_hangs_nobody(side: Side, root: Path) -> None:
    os.mkfifo(root / "f")
    results = side.batch(file("f", b"1", content(b"0")), delete("f2", content(b"0")))
    assert results["f"][0] == "conflict"
    assert side.batch(file("f", b"1", None, unlike="backup"))["f"][0] == "replaced"
    assert stat.S_ISFIFO((root / ".tk-replaced/20261121T181500Z/f").stat().st_mode)


def test_a_root_that_has_gone_ends_the_channel(side: Side, root: Path) -> None:
    side.begin()
    side.send(*file("a", b"1"))
    moved = root.with_name("moved")
    root.rename(moved)
    root.mkdir()
    assert not side.send({"op": "commit", "batch": 1})
    assert side.answers[-1]["error"] == "no-root"
    side.close()
    assert tree_of(root) == tree_of(moved) == {}


def test_another_owner_ends_the_channel(root: Path) -> None:
    owner = root.parent / "owner"
    side = Side(root, {"file": str(owner), "id": "abc"})
    assert side.batch(file("a", b"1")) == {}
    owner.write_text("{id: xyz}")
    side.begin()
    side.send(*file("a", b"2", content(b"1")))
    assert not side.send({"op": "commit", "batch": 2})
    assert side.answers[-1]["error"] == "displaced"
    assert side.answers[-1]["owner"] == "{id: xyz}"
    side.close()
    assert tree_of(root) == {"a": b"1"}


# -- what readers see -----------------------------------------------------


def test_readers_see_whole_files_only(side: Side, root: Path) -> None:
    versions = [bytes([number]) * 50_000 for number in range(200)]
    path = root / "a"
    side.batch(file("a", versions[0]))

    def look() -> str | None:
        data = path.read_bytes()
        return None if len(set(data)) == 1 and len(data) == 50_000 else repr(data[:20])

    with Watcher(look) as watcher:
        for before, after in itertools.pairwise(versions):
            assert side.batch(file("a", after, content(before))) == {}
    assert watcher.wrong == []
    assert watcher.looks > 0


def test_readers_see_a_new_package_whole(side: Side, root: Path) -> None:
    paths = [f"package/part{number % 7}/module{number}.py" for number in range(300)]

    def look() -> str | None:
        try:
            there = set(os.listdir(root / "package"))
        except FileNotFoundError:
            return None
        if there != {f"part{number}" for number in range(7)}:
            return f"directories: {there}"
        missing = [path for path in paths if not (root / path).is_file()]
        return f"missing: {missing}" if missing else None

    with Watcher(look) as watcher:
        assert side.batch(*(file(path, path.encode()) for path in paths)) == {}
        looks = watcher.looks
        while watcher.looks < looks + 2:
            pass
    assert watcher.wrong == []


def test_the_gate_is_closed_only_while_it_changes(side: Side, root: Path) -> None:
    seen: list[bool] = []
    side.on_answer = lambda header: seen.append(side.gate.is_open)
    gate = side.gate
    entered: list[bool] = []

    class Tells:
        def __enter__(self) -> None:
            gate.__enter__()
            entered.append(gate.is_open)

        def __exit__(self, *exc: object) -> None:
            gate.__exit__(*exc)

    side._batches._gate = Tells()
    side.batch(file("a", b"1"))
    assert entered == [False]
    assert seen == [True, True]
