"""What the cases of `scripts/bench mirror` share: their sizes, the lab, what was found."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchlib.disk import flush
from benchlib.measure import Series
from benchlib.mirrortrees import Eyes
from benchlib.mirrorways import Mux
from benchlib.rig import Rig
from tunnelkit import lab

VISIBLE, BARRIER, FIRST, COPY, CHECKOUT, MIXED, DELTA_S, DELTA_BYTES, OVERTAKE = (
    "edit to visible, ms",
    "clean barrier, ms",
    "first copy within tk up, s, from the link on, with all that tk up does then",
    "first copy, s, to all visible, both over links that are up",
    "git checkout to all visible, s",
    "of that, old and new side by side, s",
    "4 bytes of a big file changed, to visible, s",
    "the same, bytes on the line",
    "edit to visible while a big file is sent, ms",
)
EDIT_CPU, EDIT_BYTES, EDIT_RSS = "CPU per edit, ms", "bytes per edit", "memory, MB"
COMMAND = "tk sync --wait, whole command"


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    edits: int = 30
    slow_edits: int = 10
    rounds: int = 3
    tree: int = 10_000
    barrier: int = 20_000
    first_rounds: int = 3
    copy_rounds: int = 7
    checkout: int = 5_000
    big_bytes: int = 200_000_000
    watched: int = 50_000
    idle_s: float = 30.0


QUICK = Sizes(4, 3, 2, 400, 800, 1, 2, 300, 20_000_000, 1_000, 3.0)


@dataclass
class Found:
    """RTT in ms -> measure -> way -> values; what was not measured and why."""

    rows: dict[float, dict[str, dict[str, Series]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    generations: dict[float, list[int]] = field(default_factory=dict)
    idle: dict[str, tuple[float, float]] = field(default_factory=dict)  # CPU part, MB
    load: list[float] = field(default_factory=list)

    def add(self, rtt_ms: float, measure: str, way: str, value: float) -> None:
        ways = self.rows.setdefault(rtt_ms, {}).setdefault(measure, {})
        ways.setdefault(way, Series()).values.append(value)


class Case:
    """What the cases share: the lab, the looker, the ssh master, what was found."""

    def __init__(self, first: Rig, master: Mux, looker: Eyes, rtts_ms: list[float], sizes: Sizes):
        self.info = first.info
        self.base = first.project.parent
        self.master, self.eyes = master, looker
        self.rtts_ms, self.sizes = rtts_ms, sizes
        self.found = Found()

    def rig(self, name: str) -> Rig:
        """A project of its own."""
        return Rig(self.base / name, self.info, remote=f"bench-{name}")

    def distances(self, what: str) -> Iterator[float]:
        """Each round-trip time in turn; none afterwards."""
        for rtt_ms in self.rtts_ms:
            print(f"  mirror: {what} at RTT {rtt_ms:g}", file=sys.stderr)
            lab.set_rtt(rtt_ms, self.info.dir)
            flush()
            yield rtt_ms
            self.found.load.append(os.getloadavg()[0])
        lab.set_rtt(0, self.info.dir)

    def copy(self, rig: Rig, name: str) -> tuple[Path, Path]:
        """The project's tree once more, for another way; the place on the cluster."""
        local, remote = self.base / "others" / name, self.info.home / f"other-{name}"
        if not local.exists():
            local.parent.mkdir(exist_ok=True)
            shutil.copytree(rig.project, local, symlinks=True)
            remote.mkdir()
        return local, remote
