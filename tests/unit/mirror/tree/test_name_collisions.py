"""Names that some file systems can't tell apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mirror.tree.name_collisions import EXACT, CaseFolding, renamed_by_case, set_apart
from tunnelkit.mirror.tree.scanner import FILE, Entry

CASE, UNICODE, BOTH = (
    CaseFolding(case=True),
    CaseFolding(unicode=True),
    CaseFolding(case=True, unicode=True),
)
NFC, NFD = "\u00e9.py", "e\u0301.py"
ENTRY = Entry(FILE, 0o644, 1, 1, 1, 1)


def test_an_exact_file_system_has_no_collisions() -> None:
    assert EXACT.collisions(["a", "A", NFC, NFD]) == {}
    assert not EXACT


def test_both_of_a_pair_are_named_with_the_other() -> None:
    found = CASE.collisions(["Main.py", "main.py", "other"])
    assert set(found) == {"Main.py", "main.py"}
    assert "main.py" in found["Main.py"] and "Main.py" in found["main.py"]
    assert "case" in found["main.py"]
    assert set(UNICODE.collisions([NFC, NFD, "a", "A"])) == {NFC, NFD}
    assert set(BOTH.collisions([NFC.upper(), NFD])) == {NFC.upper(), NFD}


def test_what_is_below_a_pair_goes_with_it() -> None:
    paths = ["Dir", "dir", "Dir/a", "dir/b", "dir/sub", "dir/sub/c", "directory"]
    assert set(CASE.collisions(paths)) == {*paths} - {"directory"}


def test_set_apart_reports_what_was_sent_before_too() -> None:
    sends = {"new": ENTRY, "OLD": ENTRY}
    failed = set_apart(sends, ["new", "old", "OLD"], CASE)
    assert set(sends) == {"new"}
    assert set(failed) == {"old", "OLD"}


def test_a_renamed_file_is_deleted_before_its_new_spelling_comes() -> None:
    assert CASE.replaced({"Main.py", "gone"}, {"main.py"}) == {"Main.py"}
    assert EXACT.replaced({"Main.py"}, {"main.py"}) == set()
    assert CASE.same_place({"Main.py"}, ["main.py", "other"]) == {"main.py"}


NAMES = st.lists(st.text("aAbBéÉeE\u0301/ß", min_size=1, max_size=4), unique=True, max_size=12)


@given(NAMES, st.sampled_from([CASE, UNICODE, BOTH]))
def test_what_is_left_has_one_place_each(names: list[str], folding: CaseFolding) -> None:
    colliding = folding.collisions(names)
    places = [folding.key(name) for name in names if name not in colliding]
    assert len(places) == len(set(places))


class FoldingDisk:
    """A laptop's file system that keeps spellings, and finds any."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._lstat = os.lstat

    def lstat(self, path: str) -> os.stat_result:
        if not path.startswith(self._root):
            return self._lstat(path)
        base = self._root
        for part in os.path.relpath(path, self._root).split("/"):
            names = {BOTH.key(name): name for name in os.listdir(base)}
            base = os.path.join(base, names.get(BOTH.key(part), part))
        return self._lstat(base)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    listdir = os.listdir
    fake = FoldingDisk(tmp_path)
    monkeypatch.setattr(os, "lstat", fake.lstat)
    monkeypatch.setattr(os, "listdir", listdir)
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Main.py", "main.py"),
        ("a.PY", "A.py"),
        (NFC, NFD),
        (NFD, NFC),
        ("Dir/file", "dir/file"),
        ("Dir/123", "dir/123"),
    ],
)
def test_a_new_spelling_is_no_ignored_file(disk: Path, old: str, new: str) -> None:
    (disk / new).parent.mkdir(exist_ok=True)
    (disk / new).touch()
    (disk / "ignored.txt").touch()
    assert os.path.samestat(os.lstat(str(disk / old)), os.lstat(str(disk / new)))
    assert renamed_by_case(str(disk), old)
    assert not renamed_by_case(str(disk), new)
    assert not renamed_by_case(str(disk), "ignored.txt")
    assert not renamed_by_case(str(disk), "not there")


def test_on_an_exact_file_system_nothing_was_renamed_so(tmp_path: Path) -> None:
    for name in ("main.py", NFC):
        (tmp_path / name).touch()
        assert not renamed_by_case(str(tmp_path), name)
    # A hard link under another spelling is two names, both listed.
    os.link(tmp_path / "main.py", tmp_path / "MAIN.PY")
    assert not renamed_by_case(str(tmp_path), "main.py")
