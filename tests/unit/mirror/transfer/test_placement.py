"""Local files that make way for what comes, and those that stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnelkit.mirror.transfer.base import FetchRule
from tunnelkit.mirror.transfer.placement import Arrival, Placer

_NS = 1_000_000_000


def _place(root: Path, rule: FetchRule, arrival: Arrival) -> None:
    def make(fd: int, name: str) -> None:
        if arrival.target is not None:
            os.symlink(arrival.target, name, dir_fd=fd)
        else:
            with open(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=fd), "wb") as out:
                out.truncate(arrival.size)

    placer = Placer(str(root), rule)
    placer.file("x", arrival, make)
    placer.close()
    assert placer.failed == {}


def _came(root: Path, rule: FetchRule, arrival: Arrival) -> bool:
    before = os.lstat(root / "x").st_ino
    _place(root, rule, arrival)
    return os.lstat(root / "x").st_ino != before


@pytest.mark.parametrize("target", [None, "elsewhere"])
@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize(("mtime_s", "comes"), [(99, False), (101, True)])
def test_the_newer_one_stays(
    tmp_path: Path, target: str | None, is_link: bool, mtime_s: int, comes: bool
) -> None:
    here = tmp_path / "x"
    if is_link:
        here.symlink_to("here")
    else:
        here.write_text("here")
    os.utime(here, (100, 100), follow_symlinks=False)
    arrival = Arrival(5, mtime_s * _NS, target)
    assert _came(tmp_path, FetchRule(newer_stays=True), arrival) is comes


def test_an_edit_of_what_came_stays(tmp_path: Path) -> None:
    rule = FetchRule(newer_stays=True)
    _place(tmp_path, rule, Arrival(5, 100 * _NS + 7))
    assert rule.placed == {"x": (5, 100 * _NS + 7)}
    assert _came(tmp_path, rule, Arrival(6, 200 * _NS))
    (tmp_path / "x").write_text("edited")
    os.utime(tmp_path / "x", (50, 50))
    for mtime_s in (200, 300):
        assert not _came(tmp_path, rule, Arrival(6, mtime_s * _NS))
    assert _came(tmp_path, FetchRule(newer_stays=True), Arrival(6, 200 * _NS))
