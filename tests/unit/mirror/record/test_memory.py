"""The memory that a session keeps for each path: a scan, the one before, and the manifest."""

from __future__ import annotations

import gc
import hashlib
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import DIR, Scan, Scanner

_DIRS, _FILES = 100, 20
_PATHS = _DIRS * (_FILES + 1)
#: A stamp as an agent sends it: times, inode, device.
_STAMP = "1764400000123456789:1764400000123456789:{}:66305"


@contextmanager
def costs(at_most_bytes: int) -> Iterator[None]:
    """The block keeps at most so many bytes for each path."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        gc.collect()
        kept = (tracemalloc.get_traced_memory()[0] - before) / _PATHS
    finally:
        tracemalloc.stop()
    assert kept < at_most_bytes, f"{kept:.0f} bytes for each path"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for one in range(_DIRS):
        directory = tmp_path / "project" / f"package_{one:04}"
        directory.mkdir(parents=True)
        for number in range(_FILES):
            (directory / f"module_{number:04}.py").write_text(f"{number}\n")
    return tmp_path / "project"


def sent(scan: Scan) -> dict[str, ManifestEntry]:
    return {
        path: ManifestEntry(
            entry,
            "" if entry.kind == DIR else hashlib.sha256(path.encode()).hexdigest(),
            sent=True,
            proven=True,
            stamp=_STAMP.format(entry.inode),
        )
        for path, entry in scan.entries.items()
    }


def test_a_scan_and_the_one_before_it(root: Path) -> None:
    scanner = Scanner(str(root), IgnoreRules())
    with costs(520):
        before = scanner.scan()
    # They share what has not changed: only the tables are new.
    with costs(130):
        now = scanner.scan()
    assert now.entries == before.entries and len(now.entries) == _PATHS


def test_a_manifest_that_was_read_shares_with_a_scan(root: Path, tmp_path: Path) -> None:
    scanner = Scanner(str(root), IgnoreRules())
    scan = scanner.scan()
    earlier = Manifest(tmp_path / "m.sqlite")
    earlier.open()
    earlier.put(sent(scan))
    earlier.close()
    del scan, earlier

    manifest = Manifest(tmp_path / "m.sqlite")
    scan = scanner.scan()
    with costs(550):
        manifest.open(scan.entries)
    assert not diff.compare(manifest.rows, scan.entries).changed
    assert all(manifest.rows[path].entry is entry for path, entry in scan.entries.items())
    assert {id(path) for path in manifest.rows} == {id(path) for path in scan.entries}
    manifest.close()


def test_what_was_edited_since_is_not_taken_for_what_was_sent(root: Path, tmp_path: Path) -> None:
    scanner = Scanner(str(root), IgnoreRules())
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    manifest.put(sent(scanner.scan()))
    manifest.close()
    edited, gone = "package_0000/module_0000.py", "package_0000/module_0001.py"
    (root / edited).write_text("another size\n")
    (root / gone).unlink()

    scan = Scanner(str(root), IgnoreRules()).scan()
    again = Manifest(tmp_path / "m.sqlite")
    again.open(scan.entries)
    difference = diff.compare(again.rows, scan.entries)
    assert ([*difference.changed], difference.absent) == ([edited], [gone])
    again.close()
