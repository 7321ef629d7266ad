"""Checks of what was sent, and what a crash left behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.mirror_side import Side, file, sha, tree_of
from tunnelkit.agent.mirror.dirfd_tree import stamp_of
from tunnelkit.agent.mirror.service import MirrorService


@pytest.fixture
async def files() -> AsyncIterator[MirrorService]:
    one = MirrorService()
    yield one
    await one.close()


def sent(root: Path, path: str, *, stamp: bool = True) -> list[Any]:
    """A row of `mirror.verify` of what is there now."""
    place = root / path
    state = os.lstat(place)
    kind = "l" if place.is_symlink() else "d" if place.is_dir() else "f"
    digest = {"f": lambda: sha(place.read_bytes()), "l": lambda: sha(os.fsencode(place.readlink()))}
    read = digest.get(kind, str)()
    return [path, kind, state.st_size, state.st_mode & 0o7777, read, stamp_of(state) * stamp]


async def verify(files: MirrorService, root: Path, *rows: list[Any], **more: Any) -> dict[str, Any]:
    answer = await files.verify({"root": str(root), "files": list(rows), **more})
    assert answer["instance"].startswith(files.instance)
    return answer


async def test_what_is_as_it_was_sent(files: MirrorService, root: Path) -> None:
    (root / "d").mkdir()
    (root / "d/a").write_bytes(b"1")
    (root / "l").symlink_to("d")
    rows = [sent(root, path) for path in ("d", "d/a", "l")]
    answer = await verify(files, root, *rows)
    assert (answer["differ"], answer["stamps"], answer["cleaned"]) == ({}, {}, 0)


async def test_what_is_known_by_its_stamp_is_not_read(files: MirrorService, root: Path) -> None:
    (root / "a").write_bytes(b"1")
    row = sent(root, "a")
    row[4] = sha(b"another")
    assert (await verify(files, root, row))["differ"] == {}
    row[5] = ""
    assert (await verify(files, root, row))["differ"] == {"a": "content"}


async def test_each_way_to_differ(files: MirrorService, root: Path) -> None:
    for name in ("absent", "content", "size", "mode", "kind", "link", "blocked", "touched"):
        (root / name).mkdir()
        (root / name / "x").write_bytes(b"1")
    (root / "link/x").unlink()
    (root / "link/x").symlink_to("1")
    for name in ("d1", "d2", "d3"):
        (root / name).mkdir(mode=0o755)
    rows = [sent(root, path) for path in sorted(tree_of(root)) if "/" in path or path[0] == "d"]
    (root / "absent/x").unlink()
    (root / "content/x").write_bytes(b"2")
    (root / "size/x").write_bytes(b"1+")
    (root / "mode/x").chmod(0o755)
    (root / "kind/x").unlink()
    (root / "kind/x").mkdir()
    (root / "link/x").unlink()
    (root / "link/x").symlink_to("2")
    (root / "blocked").rename(root / "moved")
    (root / "blocked").symlink_to("moved")
    os.utime(root / "touched/x")
    (root / "d1").rmdir()
    (root / "d2").chmod(0o700)
    (root / "d3").chmod(0o2755)
    answer = await verify(files, root, *rows)
    assert answer["differ"] == {
        "absent/x": "absent",
        "content/x": "content",
        "size/x": "content",
        "mode/x": "mode",
        "kind/x": "kind",
        "link/x": "content",
        "blocked/x": "kind",
        "d1": "absent",
        "d2": "mode",
    }
    stamps = {path: stamp_of(os.lstat(root / path)) for path in ("mode/x", "touched/x")}
    assert answer["stamps"] == stamps


async def test_it_cleans_up_after_a_crash_but_not_under_others(
    files: MirrorService, root: Path
) -> None:
    crashed, alive = Side(root, nonce="crashed"), Side(root, nonce="alive")
    files._nonces.add("alive")
    for path in ("a", "b/c", "b/d", "elsewhere"):
        (root / path).mkdir(parents=True)
    for side in (crashed, alive):
        side.begin()
        for path in ("x", "a/x", "b/c/x", "b/new/x", "elsewhere/x"):
            side.send(*file(path, b"whole"))
    (root / "a/f").write_bytes(b"1")
    rows = [sent(root, "a/f"), sent(root, "b/c")]
    answer = await verify(files, root, *rows, clean=False)
    assert answer["cleaned"] == 0
    answer = await verify(files, root, *rows, clean=True)
    assert answer["cleaned"] == 4
    left = [path for path in tree_of(root) if "crashed" in path]
    assert [Path(path).parent.name for path in left] == ["elsewhere"]
    assert alive.commit() == {}
    assert len(alive.proof) == 5
    alive.close()
    crashed.close()


async def test_without_files_only_the_root_is_checked(files: MirrorService, root: Path) -> None:
    owner = root.parent / "owner"
    params = {"root": str(root), "files": [], "owner": {"file": str(owner), "id": "me"}}
    assert (await files.verify(params))["differ"] == {}
    owner.write_text("you")
    told = await files.verify(params)
    assert (told["code"], told["owner"]) == ("displaced", "you")
    assert (await files.verify({"root": str(root / "absent"), "files": []}))["code"] == "no-root"


async def test_a_path_that_leads_out_is_refused(files: MirrorService, root: Path) -> None:
    for path in ("../x", "/etc/passwd", ""):
        with pytest.raises(ValueError):
            await verify(files, root, [path, "f", 0, 0, "", ""])
        with pytest.raises(ValueError):
            await files.differing({"root": str(root), "expected": {path: None}})


async def test_differing(files: MirrorService, root: Path) -> None:
    (root / "a").write_bytes(b"1")
    (root / "l").symlink_to("a")
    (root / "d").mkdir()
    expected = {
        "a": sha(b"1"),
        "l": sha(b"a"),
        "d": None,
        "gone": None,
        "b": sha(b"1"),
        "d/x": sha(b""),
        **{f"no{number}": None for number in range(200)},
    }
    assert await files.differing({"root": str(root), "expected": expected}) == ["b", "d/x"]
    expected["a"] = sha(b"2")
    told = await files.differing({"root": str(root), "expected": expected})
    assert told == ["a", "b", "d/x"]
    assert await files.differing({"root": str(root / "gone"), "expected": expected}) == [
        path for path, digest in expected.items() if digest is not None
    ]
