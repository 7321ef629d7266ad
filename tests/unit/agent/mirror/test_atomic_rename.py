"""Who writes a file in the very moment in which tk's version takes its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.mirror_side import Side, file, left, parts_of, sha, tree_of
from tunnelkit.agent.mirror import atomic_rename, publish

Rename = Callable[[int, bytes, int, bytes], bool]


def at_that_moment(
    monkeypatch: pytest.MonkeyPatch, name: str, edit: Callable[[], Any], times: int = 1
) -> None:
    """`edit` is done right before the first renames of that kind."""
    real: Rename = getattr(publish, name)
    left_over = [None] * times

    def late(*args: Any) -> bool:
        if left_over:
            left_over.pop()
            edit()
        return real(*args)

    monkeypatch.setattr(publish, name, late)


def put(path: Path, data: bytes) -> None:
    """As editors do it."""
    other = path.with_name(".other")
    other.write_bytes(data)
    other.replace(path)


@pytest.fixture
def known(root: Path) -> dict[str, Any]:
    """A file of tk's, and what tk knows of it."""
    (root / "a").write_bytes(b"ours")
    return left(root / "a", sha(b"ours"))


def test_what_was_there_goes(side: Side, root: Path, known: dict[str, Any]) -> None:
    assert side.batch(file("a", b"new", known)) == {}
    assert tree_of(root) == {"a": b"new"}
    assert parts_of(root) == []


def test_a_file_that_is_replaced_at_that_moment(
    side: Side, root: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_that_moment(monkeypatch, "exchange", lambda: put(root / "a", b"theirs"))
    assert side.batch(file("a", b"new", known))["a"][0] == "conflict"
    assert tree_of(root) == {"a": b"theirs"}
    assert parts_of(root) == []


def test_a_directory_that_takes_its_place(
    side: Side, root: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit() -> None:
        (root / "a").unlink()
        (root / "a").mkdir()
        (root / "a/theirs").write_bytes(b"1")

    at_that_moment(monkeypatch, "exchange", edit)
    side.batch(file("a", b"new", known))
    assert tree_of(root) == {"a": None, "a/theirs": b"1"}
    assert parts_of(root) == []


def test_a_file_that_goes(
    side: Side, root: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_that_moment(monkeypatch, "exchange", lambda: (root / "a").unlink())
    assert side.batch(file("a", b"new", known)) == {}
    assert tree_of(root) == {"a": b"new"}


def test_a_file_that_comes(side: Side, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_that_moment(monkeypatch, "rename_new", lambda: put(root / "a", b"theirs"))
    assert side.batch(file("a", b"new"))["a"][0] == "conflict"
    assert tree_of(root) == {"a": b"theirs"}


def test_one_who_never_stops(
    side: Side, root: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alternates between what tk may replace and something else."""
    known = {**known, "stamp": "", "size": -1, "digests": [sha(b"ours")]}
    at_that_moment(monkeypatch, "exchange", lambda: put(root / "a", b"ours"), times=99)
    state, why = side.batch(file("a", b"new", known))["a"]
    assert state == "failed"
    assert "writing" in why
    assert tree_of(root) == {"a": b"ours"}
    assert parts_of(root) == []


@pytest.mark.parametrize("there", [True, False])
def test_where_there_are_plain_renames_only(
    side: Side, root: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr(atomic_rename, "_renameat2", lambda: None)
    known = None
    if there:
        (root / "a").write_bytes(b"ours")
        known = left(root / "a", sha(b"ours"))
    assert side.batch(file("a", b"new", known)) == {}
    assert tree_of(root) == {"a": b"new"}
    assert parts_of(root) == []
