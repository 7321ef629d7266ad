"""The pure parts: comparing, deleting, halting; and the manifest's own file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.transfer.rsync import itemized, quote_shell, unescape
from tunnelkit.mirror.tree.paths import with_parents
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK, Entry, racy

PATHS = st.lists(st.sampled_from(["a", "b", "-c", "d\n", "\udcff"]), min_size=1, max_size=3).map(
    "/".join
)
ENTRIES = st.builds(
    Entry,
    st.sampled_from([FILE, DIR, LINK]),
    st.sampled_from([0o644, 0o755]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 2**64 - 1),
)
ROWS = st.builds(ManifestEntry, ENTRIES, st.sampled_from(["", "aa"]), *([st.booleans()] * 4))


@given(
    st.dictionaries(PATHS, ROWS),
    st.dictionaries(PATHS, ENTRIES),
    st.none() | st.sets(PATHS),
    st.sets(PATHS),
)
def test_what_is_only_doubted_waits_and_nothing_else(
    rows: dict[str, ManifestEntry],
    entries: dict[str, Entry],
    looked: set[str] | None,
    force: set[str],
) -> None:
    difference = diff.compare(rows, entries, force=force)
    before, absent = dict(difference.changed), list(difference.absent)
    doubted = diff.split_doubted(difference, rows, looked, force)
    assert {**difference.changed, **doubted.changed} == before
    assert not difference.changed.keys() & doubted.changed.keys()
    assert (difference.absent, doubted.absent) == (absent, [])
    for path, entry in doubted.changed.items():
        assert looked is not None and path not in looked and path not in force
        assert rows[path].sent and rows[path].racy and rows[path].entry == entry


@given(st.dictionaries(PATHS, ROWS), st.dictionaries(PATHS, ENTRIES), st.sets(PATHS))
def test_compare_misses_nothing(
    rows: dict[str, ManifestEntry], entries: dict[str, Entry], force: set[str]
) -> None:
    found = diff.compare(rows, entries, force=force)
    for path, entry in entries.items():
        row = rows.get(path)
        settled = row and row.sent and not row.racy and row.entry == entry and path not in force
        assert (path in found.changed) is not bool(settled)
    assert set(found.absent) == rows.keys() - entries.keys()
    assert found.changed.keys() <= entries.keys()


@given(st.dictionaries(PATHS, ROWS))
def test_what_was_recorded_compares_as_equal(rows: dict[str, ManifestEntry]) -> None:
    rows = {path: row._replace(sent=True, racy=False) for path, row in rows.items()}
    found = diff.compare(rows, {path: row.entry for path, row in rows.items()})
    assert not found.changed
    assert not found.absent


@given(st.dictionaries(PATHS, ROWS), st.dictionaries(PATHS, ROWS), st.sets(PATHS))
def test_manifest_remembers(
    tmp_path_factory: pytest.TempPathFactory,
    first: dict[str, ManifestEntry],
    second: dict[str, ManifestEntry],
    drop: set[str],
) -> None:
    path = tmp_path_factory.mktemp("state") / "sub" / "m.sqlite"
    manifest = Manifest(path)
    manifest.open()
    manifest.put(first)
    manifest.put(second)
    manifest.drop(drop)
    kept = dict(manifest.rows)
    manifest.close()
    again = Manifest(path)
    again.open()
    assert again.rows == kept
    assert kept == {key: row for key, row in (first | second).items() if key not in drop}
    again.close()
    assert os.stat(path).st_mode & 0o077 == 0


def test_damaged_manifest_means_that_nothing_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    manifest = Manifest(path)
    manifest.open()
    assert manifest.rows == {}
    manifest.put({"a": ManifestEntry(Entry(FILE, 0o644, 1, 2, 3, 4), "aa", sent=True)})
    manifest.close()
    assert (tmp_path / "m.damaged").exists()


def test_proofs(tmp_path: Path) -> None:
    entry = Entry(FILE, 0o644, 1, 2, 3, 4)
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    manifest.put({"a": ManifestEntry(entry, "aa", sent=True), "unsent": ManifestEntry(entry, "bb")})
    manifest.put({"dir": ManifestEntry(entry._replace(kind=DIR), "", sent=True)})
    assert manifest.unproven() == {"a": "aa"}
    assert manifest.prove({"a": "older digest", "gone": "aa", "unsent": "bb"}) == 0
    assert manifest.prove({"a": "aa"}) == 1
    manifest.refresh({"a": (entry._replace(ctime_ns=9), False), "gone": (entry, False)})
    assert manifest.unproven() == {}
    assert manifest.rows["a"].entry.ctime_ns == 9
    manifest.forget_proofs()
    assert manifest.unproven() == {"a": "aa"}
    manifest.close()


def file(size: int = 1) -> Entry:
    return Entry(FILE, 0o644, size, 0, 0, 0)


def test_swaps_go_first_and_nothing_else() -> None:
    folder = Entry(DIR, 0o755, 0, 0, 0, 0)
    rows = {
        "d": ManifestEntry(folder),
        "d/x": ManifestEntry(file()),
        "f": ManifestEntry(file()),
        "old": ManifestEntry(file()),
    }
    deletes = {"d/x", "old"}
    sends = {"d": file(), "f": folder, "f/y": file(), "new": file()}
    assert diff.swaps(deletes, sends, rows) == {"d", "d/x", "f"}


def test_with_parents() -> None:
    assert with_parents(["a/b/c", "d"]) == {"a", "a/b", "a/b/c", "d"}


@given(st.binary(min_size=1).filter(lambda text: b"\n" not in text and b"\\" not in text))
def test_unescape_leaves_plain_names(name: bytes) -> None:
    assert os.fsencode(unescape(name)) == name


def test_itemized_names() -> None:
    text = b"<f.st...... a\\#012b\ncd+++++++++ dir/\n.f...p..... ./x y\nskipping odd\n\n"
    assert itemized(text) == ["a\nb", "dir", "x y"]


def test_shell_words() -> None:
    assert quote_shell(["ssh", "-oA=b c", "it's"]) == "'ssh' '-oA=b c' 'it''s'"


def test_racy() -> None:
    now = 1_700_000_000_123_456_789
    assert racy(Entry(FILE, 0, 0, 0, now - 1_000_000, 0), now)
    assert not racy(Entry(FILE, 0, 0, 0, now - 1_000_000_000, 0), now)
    assert racy(Entry(FILE, 0, 0, 0, 1_700_000_000_000_000_000 - 1_000_000_000, 0), now)


def test_directories_above_go_with_what_is_sent_first() -> None:
    """rsync makes them on its way; sent later, they would count as somebody's."""
    folder = Entry(DIR, 0o755, 0, 0, 0, 0)
    rest = diff.Diff({"a": folder, "a/b": folder, "c": folder, "a/x.py": file()})
    apart = diff.Diff({"a/b/model.bin": file()})
    diff.move_parents(rest, apart)
    assert rest.changed.keys() == {"c", "a/x.py"}
    assert apart.changed.keys() == {"a", "a/b", "a/b/model.bin"}
