"""Batches of the mirror on a real directory: how they arrive, and what refuses them."""

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
    link,
    parts_of,
    text,
    tree_of,
)
from tunnelkit.agent.mirror.dirfd_tree import stamp_of


def test_a_file_arrives_whole_with_mode_and_time(side: Side, root: Path) -> None:
    assert side.batch(file("a.py", b"one\n", mode=0o751)) == {}
    state = os.lstat(root / "a.py")
    assert (root / "a.py").read_bytes() == b"one\n"
    assert (stat.S_IMODE(state.st_mode), state.st_mtime_ns) == (0o751, MTIME_NS)
    assert side.proof == {"a.py": stamp_of(state)}
    assert side.differ == {}
    assert side.committed["replaced_dir"] is None


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o777])
def test_a_file_gets_its_mode_whatever_the_agents_umask(side: Side, root: Path, umask: int) -> None:
    modes = [0o644, 0o600, 0o666, 0o777, 0o444, 0o000, 0o4755, 0o2644, 0o1755]
    before = os.umask(umask)
    try:
        assert side.batch(*(file(f"m{mode:o}", b"x", mode=mode) for mode in modes)) == {}
    finally:
        os.umask(before)
    found = [stat.S_IMODE((root / f"m{mode:o}").stat().st_mode) for mode in modes]
    assert found == modes


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


def test_directories_above_are_made_again_or_opened(side: Side, root: Path) -> None:
    above = {"above": [["d/e", 0o750, True], ["d", 0o755, True]]}
    assert side.batch(file("d/e/a", b"1", **above)) == {}
    assert tree_of(root) == {"d": None, "d/e": None, "d/e/a": b"1"}
    assert stat.S_IMODE(os.lstat(root / "d/e").st_mode) == 0o750
    # There, but closed by somebody: tk made it, so it is as on the laptop again.
    (root / "d/e").chmod(0o700)
    assert side.batch(file("d/e/b", b"2", **above)) == {}
    assert stat.S_IMODE(os.lstat(root / "d/e").st_mode) == 0o750
    # There before tk: its mode is left alone.
    (root / "d/e").chmod(0o700)
    above = {"above": [["d/e", 0o750, False]]}
    assert side.batch(link("d/e/c", "b", **above)) == {}
    assert stat.S_IMODE(os.lstat(root / "d/e").st_mode) == 0o700
    assert tree_of(root)["d/e/c"] == ("link", "b")


class TestABatchWithinAnother:
    """Saves that overtake a big file."""

    def test_it_is_published_first(self, side: Side, root: Path) -> None:
        data = os.urandom(1_000_000)
        header, _ = file("big", data, more=True)
        outer = side.begin()
        side.send(header, data[:500_000])
        assert side.batch(file("a.py", b"one\n")) == {}
        assert tree_of(root).keys() >= {"a.py"}
        assert not (root / "big").exists()
        assert side.batch(file("b.py", b"two\n")) == {}
        side.send({"op": "data", "last": True}, data[500_000:])
        assert side.send({"op": "commit", "batch": outer})
        assert side.committed["batch"] == outer
        assert (root / "big").read_bytes() == data
        assert sorted(os.listdir(root)) == ["a.py", "b.py", "big"]

    def test_an_abort_leaves_the_other_one(self, side: Side, root: Path) -> None:
        outer = side.begin()
        side.send(*file("big", b"big"))
        inner = side.begin()
        side.send(*file("a.py", b"one\n"))
        assert side.send({"op": "abort", "batch": inner})
        assert side.send({"op": "abort", "batch": inner}), "it is over already"
        assert side.send({"op": "commit", "batch": outer})
        assert sorted(os.listdir(root)) == ["big"]

    def test_an_abort_of_the_outer_one_takes_both(self, side: Side, root: Path) -> None:
        outer = side.begin()
        side.send(*file("big", b"big"))
        side.begin()
        side.send(*file("a.py", b"one\n"))
        assert side.send({"op": "abort", "batch": outer})
        assert os.listdir(root) == []
        assert side.batch(file("b.py", b"two\n")) == {}

    def test_the_end_of_the_channel_takes_both(self, side: Side, root: Path) -> None:
        side.begin()
        side.send(*file("big", b"big"))
        side.begin()
        side.send(*file("a.py", b"one\n"))
        side.close()
        assert os.listdir(root) == []

    @pytest.mark.parametrize(
        "parcel",
        [
            {"op": "begin", "batch": 9, "replaced": "r"},
            {"op": "begin", "batch": 2, "replaced": "r"},
            {"op": "commit", "batch": 1},
            {"op": "commit", "batch": 9},
        ],
    )
    def test_no_third_one_and_each_in_its_turn(
        self, side: Side, root: Path, parcel: dict[str, object]
    ) -> None:
        side.begin()
        side.begin()
        assert not side.send(parcel)
        assert side.answers[-1]["error"] == "protocol"
        side.close()
        assert os.listdir(root) == []
