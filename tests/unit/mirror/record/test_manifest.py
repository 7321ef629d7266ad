"""The manifest when the mirror is stopped while a thread is still at it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.record import intent_log
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE, Entry

_ROW = ManifestEntry(Entry(FILE, 0o644, 5, 1, 1, 7), "digest", sent=True)

#: What `tk up` does when it is told to end in its first moments, again and again: the loop's
#: thread goes on to `close` while the worker thread is in `open`.
_STRESS = """
import asyncio, sys
from pathlib import Path
from tunnelkit.mirror.record.manifest import Manifest

async def main():
    for number in range(400):
        manifest = Manifest(Path(sys.argv[1]) / f"m{number % 4}.sqlite")
        task = asyncio.create_task(asyncio.to_thread(manifest.open))
        await asyncio.sleep(number % 100 * 5e-5)
        task.cancel()
        await asyncio.wait([task])
        manifest.close()

asyncio.run(main())
"""


def _with_a_row(path: Path) -> None:
    manifest = Manifest(path)
    manifest.open()
    manifest.put({"a": _ROW})
    manifest.close()


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_record_is_read_and_goes_on(tmp_path: Path, version: int) -> None:
    path = tmp_path / "m.sqlite"
    columns = (
        "path BLOB PRIMARY KEY, kind, mode, size, mtime_ns, ctime_ns, inode, digest, sent, racy"
    )
    stamp = ", stamp TEXT NOT NULL DEFAULT ''" if version == 2 else ""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE entry ({columns}, made, proven{stamp}) WITHOUT ROWID")
        values = (b"a", *_ROW.entry, *_ROW[1:6], *([""] if stamp else []))
        db.execute(f"INSERT INTO entry VALUES ({','.join('?' * len(values))})", values)
        db.execute(f"PRAGMA user_version={version}")
        db.commit()
    tried = _ROW._replace(sent=False, tried="other")
    for expected in ({"a": _ROW}, {"a": tried}):
        manifest = Manifest(path)
        manifest.open()
        assert manifest.rows == expected
        manifest.put({"a": tried})
        manifest.close()
    assert not list(tmp_path.glob("*.damaged"))


def test_what_may_be_there_after_a_kill_is_known(tmp_path: Path) -> None:
    killed = Manifest(tmp_path / "m.sqlite")
    killed.open()
    new = _ROW._replace(digest="new", sent=False)
    killed.put({"a": _ROW, "b": _ROW, "new": new})
    killed.intend({"a": _ROW._replace(sent=False, tried="one two")})
    again = Manifest(tmp_path / "m.sqlite")
    again.open()
    assert again.tried() == {"a": {"digest", "one", "two"}}
    again.put({"a": _ROW._replace(digest="two")})
    assert again.tried() == {}
    again.close()
    killed.close()


def test_closed_at_any_moment_of_its_opening(tmp_path: Path) -> None:
    """In a process of its own: CPython 3.11 dies if a connection is closed under a statement."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _STRESS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.glob("*.damaged"))


def test_closed_while_it_is_opened_the_record_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is closed under it looks to `open` like a damaged file."""
    path = tmp_path / "m.sqlite"
    _with_a_row(path)
    inside, closed = threading.Event(), threading.Event()

    class Slow(sqlite3.Connection):
        def execute(self, *args: object) -> sqlite3.Cursor:
            inside.set()
            closed.wait(0.1)  # what has no lock closes within it
            return super().execute(*args)  # type: ignore[arg-type]

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **more: connect(*args, factory=Slow, **more)
    )
    manifest = Manifest(path)
    opening = threading.Thread(target=manifest.open)
    opening.start()
    assert inside.wait(20)
    manifest.close()
    closed.set()
    opening.join(20)
    monkeypatch.undo()
    again = Manifest(path)
    again.open()
    assert again.rows == {"a": _ROW}
    assert not list(tmp_path.glob("*.damaged"))
    again.close()


def test_what_comes_after_the_close_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    _with_a_row(path)
    manifest = Manifest(path)
    manifest.open()
    manifest.close()
    with pytest.raises(MirrorError, match="stopped"):
        manifest.put({"b": _ROW})
    with pytest.raises(MirrorError, match="stopped"):
        manifest.drop(["a"])
    with pytest.raises(MirrorError, match="stopped"):
        manifest.open()
    manifest.close()


def test_what_was_intended_is_known_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    _with_a_row(path)
    killed = Manifest(path)
    killed.open()
    sending = _ROW._replace(sent=False)
    killed.intend({"a": sending, "b\n\udcff": sending})
    # Without `close`; and the power went in the middle of a line.
    with open(path.with_suffix(".intents"), "ab") as stream:
        stream.write(b'{"c": [[')
    after = Manifest(path)
    after.open()
    assert after.rows == {"a": sending, "b\n\udcff": sending}
    assert after.unsettled == {"a", "b\n\udcff"}
    assert path.with_suffix(".intents").read_bytes() == b""
    after.close()
    killed.close()
    again = Manifest(path)
    again.open()
    assert again.rows == {"a": sending, "b\n\udcff": sending}
    again.close()


def test_an_intent_is_forgotten_once_the_row_is_written(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    notes = tmp_path / "m.intents"
    manifest.intend({"a": _ROW._replace(sent=False), "b": _ROW._replace(sent=False)})
    manifest.put({"a": _ROW})
    assert notes.stat().st_size > 0
    manifest.drop(["b"])
    assert notes.stat().st_size == 0
    manifest.close()
    again = Manifest(tmp_path / "m.sqlite")
    again.open()
    assert again.rows == {"a": _ROW}
    again.close()


@pytest.mark.parametrize("full", [False, True])
def test_intents_that_nothing_settles_fill_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Such as those of a file that can't be written there: it is sent again and again."""
    monkeypatch.setattr(intent_log, "_ROOM_BYTES", 2000)
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    notes = tmp_path / "m.intents"
    if full:
        (tmp_path / "m.intents-new").mkdir()  # no other file can be made
    for number in range(200):
        sending = _ROW._replace(digest=f"digest {number}", sent=False)
        manifest.intend({"stuck": sending, f"new {number % 7}": sending, "saved": sending})
        manifest.put({"saved": _ROW})
    assert (notes.stat().st_size > 30_000) == full
    assert full or notes.stat().st_size < 6000
    rows = dict(manifest.rows)
    again = Manifest(tmp_path / "m.sqlite")  # without `close`
    again.open()
    assert again.rows == rows
    assert again.rows["stuck"].digest == "digest 199"
    again.close()
    manifest.close()


def test_where_something_may_be_left_is_known_until_it_was_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    first = Manifest(path)
    first.open()
    first.put({"a/sent.py": _ROW})
    first.intend({name: _ROW._replace(sent=False) for name in ("b/c/x.py", "b\udcff/y.py", "z")})
    first.drop(["a/sent.py", "b/c/x.py", "b\udcff/y.py", "z", "never/known.py"])
    # The root is cleaned in any case, and no agent takes it for a path.
    assert first.unclean == {"b/c", "b\udcff"}
    first.cleaned(["never", "b\udcff"])
    # Without `close`.
    after = Manifest(path)
    after.open()
    assert after.rows == {} and after.unclean == first.unclean == {"b/c"}
    after.cleaned(["b/c"])
    after.close()
    first.close()
    again = Manifest(path)
    again.open()
    assert again.unclean == set()
    again.close()


def test_a_first_copy_that_was_killed_is_known(tmp_path: Path) -> None:
    killed = Manifest(tmp_path / "m.sqlite")
    killed.open()
    for begin in (0, 500):
        paths = (str(number) for number in range(begin, begin + 500))
        killed.intend(dict.fromkeys(paths, _ROW._replace(sent=False)))
    again = Manifest(tmp_path / "m.sqlite")
    again.open()
    assert again.rows == killed.rows and len(again.rows) == 1000
    again.close()
    killed.close()


def test_what_could_not_be_noted_whole_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    write = os.write
    sending = _ROW._replace(sent=False)
    with monkeypatch.context() as patch:  # as a disk that is full
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
        with pytest.raises(OSError, match="No space"):
            manifest.intend({"a": sending})
    manifest.intend({"b": sending})
    again = Manifest(tmp_path / "m.sqlite")
    again.open()
    assert again.rows == {"b": sending}
    again.close()
    manifest.close()


def test_a_line_cut_short_swallows_no_other(tmp_path: Path) -> None:
    (tmp_path / "m.intents").write_bytes(b'{"a": [')
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    manifest.intend({"b": _ROW._replace(sent=False)})
    again = Manifest(tmp_path / "m.sqlite")
    again.open()
    assert set(again.rows) == {"b"}
    again.close()
    manifest.close()


def test_a_save_after_a_first_copy_walks_no_table_of_its_size(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "m.sqlite")
    manifest.open()
    paths = [f"f{number}" for number in range(20_000)]
    manifest.put({path: _ROW._replace(sent=False) for path in paths})
    assert len(manifest.unsettled) == len(paths)
    manifest.put(dict.fromkeys(paths, _ROW))
    manifest.prove(dict.fromkeys(paths, _ROW.digest))
    one = _ROW._replace(racy=True)
    manifest.put({"f1": one})  # one more keeps neither from being small
    assert manifest.unsettled == {"f1"}
    assert sys.getsizeof(manifest.unsettled) < 4096
    manifest.close()


_NEW = (False, False)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "intend", "done", "drop"]),
        st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.booleans(), st.booleans())),
    ),
    max_size=8,
)


@example([("put", {"a": _NEW}), ("intend", {"b": _NEW}), ("done", {"b": _NEW})])
@given(_STEPS)
def test_whatever_is_put_down_is_what_another_reads(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, dict[str, tuple[bool, bool]]]]
) -> None:
    path = tmp_path_factory.mktemp("m") / "m.sqlite"
    manifest = Manifest(path)
    manifest.open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tunnelkit.mirror.record.manifest._MANY", 0
        )  # at one stroke also where few are
        for what, some in steps:
            rows = {
                one: _ROW._replace(sent=sent and what == "put", racy=racy)
                for one, (sent, racy) in some.items()
            }
            if what == "drop":
                manifest.drop(rows)
            elif what == "intend":
                manifest.intend(rows)
            elif what == "done":  # as after a batch: what is known becomes sent
                known = manifest.rows.items()
                manifest.put({one: row._replace(sent=True) for one, row in known if one in rows})
            else:
                manifest.put(rows)
            # As a kill at this moment would leave it.
            left = shutil.copytree(path.parent, tmp_path_factory.mktemp("left") / "m")
            again = Manifest(left / path.name)
            again.open()
            assert again.rows == manifest.rows
            again.close()
            assert not list(left.glob("*.damaged"))
    manifest.close()


def test_a_lock_or_a_full_disk_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its rows, what was edited on the cluster would be replaced, and not be a conflict."""
    path = tmp_path / "m.sqlite"
    _with_a_row(path)
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **more: connect(*args, timeout=0.1, **more)
    )
    with contextlib.closing(connect(path)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(MirrorError, match="can't be opened"):
            Manifest(path).open()
        other.rollback()
    again = Manifest(path)
    again.open()
    assert again.rows == {"a": _ROW}
    again.close()
    assert not list(tmp_path.glob("*.damaged"))
