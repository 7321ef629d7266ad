"""The pure parts of conflicts: what is suspect, sha256sum's lines, the paths people name."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelkit.errors import MirrorConflict, MirrorError, TunnelkitError
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.remote.edits import (
    conflict_error,
    matches_sent,
    parse_digest,
    paths_under,
    relative_to,
    select_conflicts,
    suspects,
)
from tunnelkit.mirror.remote.scripts import RemoteStat
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK, Entry

SENT = ManifestEntry(Entry(FILE, 0o644, 5, 7_900_000_000, 0, 1), "aa", sent=True)


@pytest.mark.parametrize(
    ("found", "same"),
    [
        (RemoteStat(FILE, 5, 7), True),
        (RemoteStat(FILE, 6, 7), False),
        (RemoteStat(FILE, 5, 8), False),
        (RemoteStat(LINK, 5, 7), False),
        (RemoteStat("", 5, 7), False),
        (None, False),
    ],
)
def test_as_sent(found: RemoteStat | None, same: bool) -> None:
    assert matches_sent(SENT, found) is same


def test_suspects() -> None:
    edited, same = RemoteStat(FILE, 6, 7), RemoteStat(FILE, 5, 7)
    folder = ManifestEntry(Entry(DIR, 0o755, 0, 0, 0, 0), sent=True)
    rows = dict.fromkeys(("edited", "same", "doubted", "gone", "to_dir"), SENT)
    rows |= {"open": SENT._replace(sent=False), "dir": folder}
    there = dict.fromkeys(("edited", "open", "new", "to_dir"), edited)
    there |= {"same": same, "doubted": same, "dir": RemoteStat(DIR, 0, 0)}
    sends = dict.fromkeys((*rows, "new"), SENT.entry)
    sends |= {"dir": folder.entry, "to_dir": folder.entry}
    assert suspects(sends, rows, there, {"doubted", "gone"}) == {"edited", "doubted"}


NAMES = st.binary(min_size=1, max_size=20).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@settings(max_examples=30, deadline=None)
@given(st.sets(NAMES, min_size=1, max_size=8))
def test_every_name_survives_sha256sum(
    tmp_path_factory: pytest.TempPathFactory, names: set[bytes]
) -> None:
    directory = os.fsencode(tmp_path_factory.mktemp("names"))
    for name in names:
        with open(os.path.join(directory, name), "wb") as stream:
            stream.write(name)
    done = subprocess.run(
        ["sha256sum", "-b", "--", *(b"./" + name for name in names)],
        cwd=directory,
        capture_output=True,
        check=True,
    )
    lines = done.stdout.removesuffix(b"\n").split(b"\n")
    expected = {os.fsdecode(name): hashlib.sha256(name).hexdigest() for name in names}
    assert dict(pair for pair in map(parse_digest, lines) if pair) == expected


@given(st.binary())
def test_other_lines_are_nothing(line: bytes) -> None:
    assert parse_digest(line) is None


def test_paths_that_people_name(tmp_path: Path) -> None:
    conflicts = ["a.py", "dir/b.py", "dir2/c.py"]
    assert paths_under(conflicts, ["dir"]) == {"dir/b.py"}
    assert select_conflicts(conflicts, ["a.py", "dir/b.py"]) == {"a.py", "dir/b.py"}
    assert select_conflicts(conflicts, [""]) == set(conflicts)
    with pytest.raises(MirrorError, match=r"other\.py is in no conflict"):
        select_conflicts(conflicts, ["a.py", "other.py"])
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "other").mkdir()
    (root / "link").symlink_to(tmp_path / "other")
    (tmp_path / "way in").symlink_to(root)
    assert relative_to(str(root), str(tmp_path / "way in" / "a.py")) == "a.py"
    assert relative_to(str(root), str(tmp_path / "way in")) == ""
    assert relative_to(str(root), str(root / "link")) == "link"
    for outside in (root / "link" / "x", tmp_path / "rooted", root / ".."):
        with pytest.raises(MirrorError, match="not in the mirrored directory"):
            relative_to(str(root), str(outside))


def test_the_error_names_ten_and_the_way_out() -> None:
    error = conflict_error({f"{n:02}.py" for n in range(12)})
    assert "12 mirrored files were changed on the cluster: 00.py" in error.message
    assert "09.py and 2 more" in error.message
    assert "--ours" in (error.hint or "") and "--theirs" in (error.hint or "")
    again = TunnelkitError.from_json(error.to_json())
    assert isinstance(again, MirrorConflict) and again.exit_code == 9
