"""What a barrier looks for beside the events."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mirror.passes.content_recheck import ContentRecheck
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import Scanner, digest, lstat
from tunnelkit.mirror.watch import missed_changes

NAMES = ["plain.py", "with space", "new\nline", "-newer", "(", "!", "ümlaut", os.fsdecode(b"\xff")]


@pytest.fixture
def by_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_changes, "_FEW_FILES", 0)
    monkeypatch.setattr(missed_changes, "_FILES_A_PROCESS", 3)
    monkeypatch.setattr(missed_changes, "_ARGUMENTS_BYTES", 40)


@pytest.mark.usefixtures("by_find")
async def test_any_name_is_found_by_find(tmp_path: Path) -> None:
    paths = [f"{above}{name}" for above in ("", "-d/", "a b/(/") for name in NAMES]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("1")
        past = time.time_ns() - 60_000_000_000
        os.utime(tmp_path / path, ns=(past, past))
    scan = Scanner(str(tmp_path), IgnoreRules.from_exclude([])).scan()
    one = missed_changes.MissedChanges(str(tmp_path))
    assert not await one.changed(scan)
    for path in paths:
        (tmp_path / path).write_text("2")
    assert (await one.changed(scan)).paths == set(paths)
    for path in paths:
        scan.entries[path] = lstat(str(tmp_path), path) or pytest.fail(path)
    assert not await one.changed(scan), "what was looked at since is known"


async def test_a_tree_on_a_network_is_looked_at_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_changes, "is_local", lambda root: False)
    scan = Scanner(str(tmp_path), IgnoreRules.from_exclude([])).scan()
    assert (await missed_changes.MissedChanges(str(tmp_path)).changed(scan)).everything


async def test_a_mount_from_a_network_is_looked_at_with_all_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "share").mkdir()
    monkeypatch.setattr(missed_changes, "remote_mounts", lambda root: ["share", "ignored/one"])
    scan = Scanner(str(tmp_path), IgnoreRules.from_exclude([])).scan()
    assert (await missed_changes.MissedChanges(str(tmp_path)).changed(scan)).paths == {"share"}


@given(st.integers(-(10**13), 10**13), st.integers(0, 10**12))
def test_a_clock_that_is_set_hides_nothing(set_ns: int, later_ns: int) -> None:
    """A file changes at any time after the first moment; the clock is set before that."""
    before = missed_changes._Moment(10**18, 7)
    wall_ns = 10**18 + set_ns + later_ns
    now = missed_changes._Moment(wall_ns, 7 + set_ns)
    assert before.earliest_ns(now) <= min(10**18, 10**18 + set_ns)


def rows_of(root: Path) -> dict[str, ManifestEntry]:
    return {
        path.name: ManifestEntry(
            lstat(str(root), path.name) or pytest.fail(path.name),
            digest(str(root), path.name, "f"),
            sent=True,
        )
        for path in root.iterdir()
    }


def test_other_content_with_the_same_times_is_found_in_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}").write_text("1")
    rows = rows_of(tmp_path)
    changed = {"03", "29"}
    for path in changed:
        rows[path] = rows[path]._replace(digest="of what was sent")
    one, found, asked = ContentRecheck(str(tmp_path)), set[str](), iter(range(1000))
    monkeypatch.setattr("tunnelkit.mirror.passes.content_recheck._LATELY_NS", 0)
    # Else a disk that stalls would end a round before its five files.
    monkeypatch.setattr("tunnelkit.mirror.passes.content_recheck._ROUND_S", 60.0)
    for _ in range(8):  # each round is stopped after five files
        found |= one.differing(rows, lambda: next(asked) % 5 == 4)
    assert found == changed


def test_what_lstat_tells_and_what_was_not_sent_is_left_to_the_next_look(tmp_path: Path) -> None:
    for name in ("edited", "gone", "unsent", "racy"):
        (tmp_path / name).write_text("1")
    rows = rows_of(tmp_path)
    rows = {path: row._replace(digest="other") for path, row in rows.items()}
    rows["unsent"] = rows["unsent"]._replace(sent=False)
    rows["racy"] = rows["racy"]._replace(racy=True)
    (tmp_path / "edited").write_text("22")
    (tmp_path / "gone").unlink()
    assert ContentRecheck(str(tmp_path)).differing(rows, lambda: False) == frozenset()
