"""What is read to be sent: its slices, and what is told of the directories above."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tunnelkit.mirror.agent import batch_reader, big_file
from tunnelkit.mirror.agent.path_header import ExpectedState, Slice
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.ignore import IgnoreRules
from tunnelkit.mirror.tree.scanner import DIR, Scan, Scanner
from tunnelkit.mux.parcels import ParcelCutter


def _scan(root: Path) -> Scan:
    return Scanner(str(root), IgnoreRules()).scan()


def _slices(root: Path, scan: Scan, rows: dict[str, ManifestEntry]) -> list[Slice]:
    difference = diff.compare(rows, scan.entries)
    return list(batch_reader.slices(str(root), scan, difference, ExpectedState(rows, {})))


def _headers(pieces: list[Slice]) -> dict[str, dict[str, Any]]:
    cutter = ParcelCutter()
    parcels = [parcel for piece in pieces for parcel in cutter.feed(piece.data)]
    return {header["path"]: header for header, _ in parcels}


def _dirs(scan: Scan, *, made: bool) -> dict[str, ManifestEntry]:
    entries = scan.entries.items()
    return {
        path: ManifestEntry(entry, sent=True, made=made)
        for path, entry in entries
        if entry.kind == DIR
    }


def test_each_directory_above_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("a/b/one", "a/b/two", "a/three", "four"):
        (tmp_path / name).write_text(name)
    scan = _scan(tmp_path)
    rows = {**_dirs(scan, made=True), "a": ManifestEntry(scan.entries["a"], sent=True)}
    headers = _headers(_slices(tmp_path, scan, rows))
    assert headers.keys() == {"a/b/one", "a/b/two", "a/three", "four"}
    modes = {path: scan.entries[path].mode for path in ("a", "a/b")}
    told = [one for header in headers.values() for one in header.get("above", ())]
    # Of one that was there before tk, the mode is not tk's to set.
    assert sorted(told) == [["a", modes["a"], False], ["a/b", modes["a/b"], True]]
    assert "above" in next(header for path, header in headers.items() if path.startswith("a/b/"))


@pytest.mark.parametrize(
    ("pulled", "ours", "unlike"),
    [((), (), "backup"), (("log",), (), "conflict"), (("log",), ("log",), "backup")],
)
def test_a_job_may_go_on_writing_what_was_pulled(
    tmp_path: Path, pulled: tuple[str, ...], ours: tuple[str, ...], unlike: str
) -> None:
    (tmp_path / "log").write_text("epoch 1\n")
    scan = _scan(tmp_path)
    known = ExpectedState({}, {}, ours=ours, pulled=pulled)
    difference = diff.compare({}, scan.entries)
    pieces = list(batch_reader.slices(str(tmp_path), scan, difference, known))
    header = _headers(pieces)["log"]
    assert (header["expect"], header["unlike"]) == (None, unlike)


def test_the_content_of_a_pulled_file_is_not_tks(tmp_path: Path) -> None:
    """Content that a pass found equal there is the job's, and so is what tk was about to send."""
    (tmp_path / "log").write_text("edited\n")
    scan = _scan(tmp_path)
    sent = ManifestEntry(scan.entries["log"], "of the job", sent=True, stamp="1:2:3:4")
    tried = sent._replace(digest="mine", sent=False)
    for row in (sent, tried):
        known = ExpectedState({"log": row}, {}, forced=("log",), pulled=("log",))
        difference = diff.compare({}, scan.entries)
        pieces = list(batch_reader.slices(str(tmp_path), scan, difference, known))
        header = _headers(pieces)["log"]
        assert header["expect"] is None
        assert (header["op"], header["unlike"]) == ("file", "conflict")


def test_a_new_directory_speaks_for_itself(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").write_text("1")
    headers = _headers(_slices(tmp_path, _scan(tmp_path), {}))
    assert list(headers) == ["new", "new/file"]
    assert headers["new"]["op"] == "dir" and "above" not in headers["new/file"]


def test_slices_end_by_bytes_and_by_paths(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"big{number}").write_bytes(b"x" * (batch_reader.SLICE_BYTES * 6 // 10))
    pieces = _slices(tmp_path, _scan(tmp_path), {})
    assert [len(piece.sends) for piece in pieces] == [2, 1]
    assert [piece.last for piece in pieces] == [False, True]
    many = tmp_path / "many"
    many.mkdir()
    for number in range(batch_reader.SLICE_PATHS):
        (many / str(number)).write_text("1")
    pieces = _slices(many, _scan(many), {})
    assert [len(piece.sends) for piece in pieces] == [batch_reader.SLICE_PATHS, 0]
    assert sum(piece.size_bytes for piece in pieces) == batch_reader.SLICE_PATHS


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as big, though it is not."""
    monkeypatch.setattr(batch_reader, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(big_file, "PIECE_BYTES", 300)
    path = tmp_path / "b.bin"
    path.write_bytes(random.Random(1).randbytes(2500))
    return path


def test_a_big_file_goes_in_pieces(big: Path) -> None:
    for name in ("a", "c"):
        (big.parent / name).write_text(name)
    pieces = _slices(big.parent, _scan(big.parent), {})
    (begin,) = (number for number, piece in enumerate(pieces) if "b.bin" in piece.sends)
    end = next(number for number in range(begin, len(pieces)) if not pieces[number].goes_on)
    assert [len(piece.sends) for piece in pieces[begin:end]] == [1, *[0] * (end - begin - 1)]
    assert sum(piece.size_bytes for piece in pieces) == 2502
    cutter = ParcelCutter()
    parcels = [parcel for one in pieces[begin : end + 1] for parcel in cutter.feed(one.data)]
    assert len(parcels) == end + 1 - begin, "a parcel each: a save can go between any two"
    assert b"".join(content for _, content in parcels) == big.read_bytes()
    first, *_, last = (header for header, _ in parcels)
    assert first["sha256"] == hashlib.sha256(big.read_bytes()).hexdigest()
    assert (first["more"], last["last"]) == (True, True)


def test_a_big_file_that_changes_while_it_is_read_is_dropped(big: Path) -> None:
    scan = _scan(big.parent)
    known = ExpectedState({}, {})
    pieces = batch_reader.slices(str(big.parent), scan, diff.compare({}, scan.entries), known)
    first = next(pieces)
    assert first.goes_on and "b.bin" in first.sends
    os.utime(big)
    *_, last, end = pieces
    assert last.dropped == last.changing == {"b.bin"} and end.last
    assert [header["op"] for header, _ in ParcelCutter().feed(last.data)] == ["drop"]


def test_a_big_file_that_is_there_already_is_not_sent(big: Path) -> None:
    scan = _scan(big.parent)
    text = hashlib.sha256(big.read_bytes()).hexdigest()
    os.utime(big, ns=(1, 1))
    rows = {"b.bin": ManifestEntry(scan.entries["b.bin"], text, sent=True)}
    (piece, _) = _slices(big.parent, _scan(big.parent), rows)
    ((header, content),) = ParcelCutter().feed(piece.data)
    assert (header["op"], header["mtime_ns"], content) == ("meta", 1, b"")


def test_a_big_file_that_is_gone_is_no_error(big: Path) -> None:
    scan = _scan(big.parent)
    known = ExpectedState({}, {})
    big.unlink()
    first, _ = batch_reader.slices(str(big.parent), scan, diff.compare({}, scan.entries), known)
    assert (first.changing, first.data) == ({"b.bin"}, b"")
