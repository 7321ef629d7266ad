"""How many deletes at once are an accident."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tunnelkit.errors import MirrorHalted
from tunnelkit.mirror.passes.delete_guard import check_deletes, may_be_moved
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry


def file(size: int = 1) -> Entry:
    return Entry(FILE, 0o644, size, 0, 0, 0)


def sent(count: int) -> dict[str, ManifestEntry]:
    return {f"f{n:04}": ManifestEntry(file(), f"digest {n}", sent=True) for n in range(count)}


@pytest.mark.parametrize(
    ("total", "gone", "halts"),
    [
        (39, 30, False),  # few: a checkout of another branch
        (101, 100, False),
        (102, 101, True),
        (300, 150, False),
        (300, 151, True),
        (1000, 200, False),
        (1000, 201, True),
    ],
)
def test_delete_limit(total: int, gone: int, halts: bool) -> None:
    rows = sent(total)
    deletes = set(list(rows)[:gone])
    entries = {path: file() for path in rows.keys() - deletes}
    if not halts:
        check_deletes(rows, deletes, entries)
        return
    with pytest.raises(MirrorHalted, match=f"^{gone} of {total} ") as caught:
        check_deletes(rows, deletes, entries)
    assert "f0000, f0001" in (caught.value.cause or "")
    assert f"f0009 and {gone - 10} more" in (caught.value.cause or "")
    assert "--confirm-deletes" in (caught.value.hint or "")


def test_the_limit_is_a_setting() -> None:
    rows = sent(1000)
    entries = {path: file() for path in list(rows)[6:]}
    check_deletes(rows, set(list(rows)[:6]), entries, limit_files=6)
    with pytest.raises(MirrorHalted, match="6 of 1000"):
        check_deletes(rows, set(list(rows)[:6]), entries, limit_files=5)


def test_a_moved_file_is_not_deleted() -> None:
    rows = sent(300)
    moved = {f"new/{path}": file() for path in rows}
    check_deletes(rows, set(rows), moved, sent_digests=[row.digest for row in rows.values()])
    with pytest.raises(MirrorHalted, match="300 of 300"):
        check_deletes(rows, set(rows), moved)
    rows = {path: row._replace(digest="the same") for path, row in rows.items()}
    with pytest.raises(MirrorHalted, match="299 of 300"):  # one new file stands for one
        check_deletes(rows, set(rows), moved, sent_digests=["the same"])


def test_emptied_root_halts_even_for_one_file() -> None:
    rows = sent(1)
    with pytest.raises(MirrorHalted, match="empty"):
        check_deletes(rows, set(rows), {"dir": Entry(DIR, 0o755, 0, 0, 0, 0)})
    check_deletes({}, set(), {})


def test_directories_do_not_count() -> None:
    rows = sent(1) | {
        f"d{n}": ManifestEntry(Entry(DIR, 0o755, 0, 0, 0, 0), sent=True) for n in range(300)
    }
    check_deletes(rows, rows.keys() - {"f0000"}, {"f0000": file()})


def test_what_may_have_arrived_counts() -> None:
    rows = sent(1) | {f"u{n}": ManifestEntry(file(), f"x{n}") for n in range(300)}
    with pytest.raises(MirrorHalted, match="300 of 301"):
        check_deletes(rows, rows.keys() - {"f0000"}, {"f0000": file()})


def test_only_new_files_of_the_size_of_a_missing_one_may_be_it(tmp_path: Path) -> None:
    changed = {}
    for name, text in {
        "moved": "abc",
        "other": "xyz",
        "longer": "abcd",
        "edited": "abc",
        "tried": "abc",
        "tried before": "abc",
    }.items():
        (tmp_path / name).write_text(text)
        changed[name] = file(len(text))
    changed |= {"unread": file(3), "dir": Entry(DIR, 0o755, 3, 0, 0, 0)}
    abc, xyz = (hashlib.sha256(text).hexdigest() for text in (b"abc", b"xyz"))
    rows = {
        "gone": ManifestEntry(file(3), abc, sent=True),
        "edited": ManifestEntry(file(3), xyz, sent=True),
        "tried": ManifestEntry(file(3), abc),
        "tried before": ManifestEntry(file(3), xyz),
    }
    found = may_be_moved(str(tmp_path), rows, changed, ["gone"])
    assert found == {"moved": abc, "other": xyz, "tried": abc}
