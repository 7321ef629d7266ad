"""Batches of the mirror while others are at work: links on the way, edits in between, readers."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

from tests.unit.agent.mirror_side import (
    Side,
    Watcher,
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
