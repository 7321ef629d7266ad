"""The mirror's batches where the file system refuses: that path is told, the others go on."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.mirror_side import (
    Side,
    content,
    delete,
    directory,
    file,
    link,
    meta,
    parts_of,
    tree_of,
)
from tunnelkit.agent.mirror.root import MirroredRoot, RootRefused

_NOBODY = 65534


@contextlib.contextmanager
def as_somebody() -> Iterator[None]:
    """Not as root, whom nothing is refused."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that anybody may reach, which pytest's are not; ours, or nobody's."""
    base = Path(tempfile.mkdtemp(prefix="tk-faults-"))
    base.chmod(0o755)
    path = base / "root"
    path.mkdir()
    if os.geteuid() == 0:
        os.chown(path, _NOBODY, _NOBODY)
    yield path
    for way, _, _ in os.walk(path):
        Path(way).chmod(0o700)
    shutil.rmtree(base)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=64", "tmpfs", str(place)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"only who may mount can make a disk that is soon full: {done.stderr}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    side = Side(small_disk)
    side.batch(file("a", b"old"), file("gone", b"x"))
    results = side.batch(
        file("big", b"x" * 1_000_000),
        file("a", b"y" * 500_000, content(b"old")),
        file("new/big", b"z" * 300_000),
        file("new/small", b"fits"),
        file("small", b"fits"),
        delete("gone", content(b"x")),
    )
    why = ["failed", "No space left on device"]
    assert results == {"big": why, "a": why, "new/big": why}
    expected = {"a": b"old", "new": None, "new/small": b"fits", "small": b"fits"}
    assert tree_of(small_disk) == expected
    assert set(side.proof) == {"new/small", "small"}
    assert side.batch(file("a", b"new", content(b"old"))) == {}
    side.close()


def test_no_inodes_left(small_disk: Path) -> None:
    side = Side(small_disk)
    results = side.batch(
        *(file(f"f{number}", b"1") for number in range(40)),
        *(directory(f"d{number}") for number in range(40)),
        *(link(f"d{number}/l", "x") for number in range(40)),
    )
    told = {path for path, (state, _) in results.items() if state == "failed"}
    assert told
    assert set(results) == told
    there = set(tree_of(small_disk))
    assert not there & told
    wanted = {f"f{n}" for n in range(40)} | {f"d{n}" for n in range(40)}
    assert wanted | {f"d{n}/l" for n in range(40)} == there | told
    assert parts_of(small_disk) == []
    side.close()


@pytest.mark.parametrize("more", [False, True])
def test_a_file_that_may_not_grow(root: Path, more: bool) -> None:
    side = Side(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    header, data = file("big", b"x" * 200_000, more=more)
    side.begin()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        if more:
            side.send(header, data[:150_000])
            side.send({"op": "data", "last": False}, data[150_000:160_000])
            side.send({"op": "data", "last": True}, data[160_000:])
        else:
            side.send(header, data)
        side.send(*file("small", b"fits"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert side.commit() == {"big": ["failed", "File too large"]}
    assert tree_of(root) == {"small": b"fits"}
    side.close()


def test_a_waythat_may_not_be_written(root: Path) -> None:
    with as_somebody():
        (root / "closed").mkdir()
        (root / "closed/a").write_bytes(b"1")
        (root / "closed").chmod(0o555)
        side = Side(root)
        results = side.batch(
            file("closed/a", b"2", content(b"1")),
            file("closed/new", b"2"),
            file("closed/sub/new", b"2"),
            delete("closed/a", content(b"1")),
            file("open", b"2"),
        )
        side.close()
    assert set(results) == {"closed/a", "closed/new", "closed/sub/new"}
    assert {tuple(result) for result in results.values()} == {("failed", "Permission denied")}
    assert tree_of(root) == {"closed": None, "closed/a": b"1", "open": b"2"}


def test_new_directories_that_are_closed_arrive_filled(root: Path) -> None:
    with as_somebody():
        side = Side(root)
        results = side.batch(
            directory("p", mode=0o555),
            directory("p/q", mode=0o500),
            file("p/q/a", b"1", mode=0o400),
            file("p/b", b"1", mode=0o000),
        )
        side.close()
        assert results == {}
        assert stat.S_IMODE((root / "p").stat().st_mode) == 0o555
        assert stat.S_IMODE((root / "p/q").stat().st_mode) == 0o500
        assert (root / "p/q/a").read_bytes() == b"1"
    # Its own mode forbids to read it back.
    assert set(side.proof) == ({"p/q/a"})
    assert side.differ == {"p/b": "unreadable: Permission denied"}


def test_what_can_not_be_read_is_not_ours(root: Path) -> None:
    with as_somebody():
        (root / "a").write_bytes(b"secret")
        (root / "a").chmod(0o000)
        side = Side(root)
        results = side.batch(file("a", b"new", content(b"old")), delete("a2", content(b"1")))
        side.close()
        (root / "a").chmod(0o600)
    assert results == {"a": ["conflict", "unreadable: Permission denied"]}
    assert (root / "a").read_bytes() == b"secret"


def test_the_mode_of_what_can_not_be_read_is_set(root: Path) -> None:
    with as_somebody():
        side = Side(root)
        side.batch(file("a", b"1", mode=0o200), directory("d", mode=0o300))
        stamp = os.lstat(root / "a")
        known = {
            "stamp": f"{stamp.st_mtime_ns}:{stamp.st_ctime_ns}:{stamp.st_ino}:{stamp.st_size}",
            "digests": content(b"1")["digests"],
        }
        results = side.batch(
            meta("a", b"1", known, mode=0o644), file("d/x", b"1"), directory("d", mode=0o755)
        )
        side.close()
    assert results == {"d": ["same", ""]}
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o644
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o755
    assert set(side.proof) == {"a", "d/x"}


def test_roots_that_can_not_be_used(root: Path) -> None:
    (root / "file").write_bytes(b"")
    for path in (root / "absent", root / "file", Path("relative")):
        with pytest.raises(RootRefused) as caught:
            MirroredRoot(str(path), None)
        assert caught.value.code == "no-root"


@pytest.mark.parametrize("text", ["", '{"id": "another"}'])
def test_a_root_that_is_somebody_elses(root: Path, text: str) -> None:
    owner = root / "owner"
    owner.write_text(text)
    with pytest.raises(RootRefused) as caught:
        MirroredRoot(str(root), {"file": str(owner), "id": "mine"})
    assert (caught.value.code, caught.value.owner) == ("displaced", text)
    owner.write_text('{"id": "mine"}')
    MirroredRoot(str(root), {"file": str(owner), "id": "mine"}).close()
