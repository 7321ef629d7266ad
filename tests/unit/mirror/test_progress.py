"""How far a transfer is, read from rsync's own words."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.mirror.progress import SHOW_BYTES, SHOW_FILES, Progress
from tunnelkit.mirror.tree.scanner import DIR, FILE, Entry

SAMPLE = (
    b"\r          32768   0%    0.00kB/s    0:00:00  "
    b"\r        3000000  33%    3.95MB/s    0:00:00 (xfr#1, ir-chk=1002/4)"
    b"\r        8162688  90%    3.66MB/s    0:00:00  "
    b"\r        9000000 100%    3.84MB/s    0:00:02 (xfr#3, to-chk=0/4)\n"
)


def entry(size: int, kind: str = FILE) -> Entry:
    return Entry(kind, 0o644, size, 0, 0, 0)


def test_only_what_takes_its_time_is_shown() -> None:
    assert Progress.of(["a"], {"a": entry(SHOW_BYTES - 1)}) is None
    assert Progress.of(["a"], {"a": entry(SHOW_BYTES), "b": entry(5)}) is not None
    many = {str(n): entry(1) for n in range(SHOW_FILES)}
    progress = Progress.of([*many, "d"], {**many, "d": entry(0, DIR)})
    assert progress is not None
    assert (progress.files_total, progress.bytes_total) == (SHOW_FILES, SHOW_FILES)


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=6))
def test_any_chunks_give_the_same(cuts: list[int]) -> None:
    progress = Progress(3, 9_000_000)
    edges = [0, *sorted(cuts), len(SAMPLE)]
    for start, end in itertools.pairwise(edges):
        progress.feed(SAMPLE[start:end])
    assert (progress.sent_files, progress.sent_bytes) == (3, 9_000_000)


def test_the_time_to_go() -> None:
    progress = Progress(3, 9_000_000, started=100.0)
    assert progress.eta_s(105.0) is None
    progress.feed(SAMPLE[: SAMPLE.index(b"8162688")])
    assert (progress.sent_files, progress.sent_bytes) == (1, 3_000_000)
    assert progress.eta_s(105.0) == pytest.approx(10.0)
    empty = Progress(300, 0, sent_files=100, started=100.0)
    assert empty.eta_s(101.0) == pytest.approx(2.0)


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync itself is asked")
def test_rsync_speaks_so(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(5):
        (source / str(number)).write_bytes(b"x" * 100_000)
    argv = ["rsync", "-r", "--info=progress2", "--no-human-readable", "--outbuf=N"]
    done = subprocess.run(
        [*argv, f"{source}/", str(tmp_path / "there")],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
    )
    progress = Progress(5, 500_000)
    progress.feed(done.stdout)
    assert (progress.sent_files, progress.sent_bytes) == (5, 500_000)
