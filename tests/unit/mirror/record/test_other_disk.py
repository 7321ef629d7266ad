"""The rows of a pod that was restarted or made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.record.other_disk import accept, doubt_all
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry

_FILE = ManifestEntry(
    Entry(FILE, 0o644, 5, 1, 1, 7), "digest", sent=True, proven=True, stamp="1:2:3:4"
)
_DIR = ManifestEntry(Entry(DIR, 0o755, 0, 1, 1, 8), "", sent=True, made=True)
_BEGUN = _FILE._replace(sent=False, proven=False, tried="older")
_ROWS = {"a": _FILE, "d": _DIR, "begun": _BEGUN}


def _opened(directory: Path) -> Manifest:
    made = Manifest(directory / "mirror-1.sqlite")
    made.open()
    return made


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[Manifest]:
    made = _opened(tmp_path)
    assert not doubt_all(made, "uid one")  # there is nothing to doubt yet
    made.put(_ROWS)
    yield made
    made.close()


def test_the_same_instance_keeps_its_rows(manifest: Manifest) -> None:
    assert not doubt_all(manifest, "uid one")
    assert not doubt_all(manifest, "")  # a host that keeps its disk
    assert manifest.rows == _ROWS


def test_another_one_has_nothing_that_was_sent(manifest: Manifest, tmp_path: Path) -> None:
    assert doubt_all(manifest, "uid two")
    # Also after a kill -9 at this moment. What a row says of a directory's maker stays.
    manifest.close()
    again = _opened(tmp_path)
    assert again.rows == {
        "a": _FILE._replace(sent=False, proven=False, stamp=""),
        "d": _DIR._replace(sent=False),
        "begun": _BEGUN,
    }
    assert not doubt_all(again, "uid two")
    again.put({"a": _FILE})
    assert doubt_all(again, "uid one")
    again.close()


def test_what_was_pulled_is_sent_to_another_disk(manifest: Manifest) -> None:
    """There its absence is not the job's doing."""
    manifest.put({"a": _FILE._replace(sent=False)})
    manifest.mark_pulled(["a"])
    manifest.put({"a": _FILE})
    assert "a" in manifest.pulled
    assert doubt_all(manifest, "uid two")
    assert not manifest.rows["a"].sent


def test_what_is_still_there_counts_as_sent(manifest: Manifest) -> None:
    """But no directory, which the agent must create again, and nothing that may still arrive."""
    doubt_all(manifest, "uid two")
    accept(manifest, {"a", "d", "begun"}, {"a": "stamp"})
    assert manifest.rows["a"] == _FILE._replace(proven=False, stamp="stamp")
    assert not manifest.rows["d"].sent and manifest.rows["begun"] == _BEGUN


def test_a_record_from_before_instances_were_noted_is_doubted(tmp_path: Path) -> None:
    made = _opened(tmp_path)
    made.put(_ROWS)
    assert doubt_all(made, "uid one")
    made.close()
