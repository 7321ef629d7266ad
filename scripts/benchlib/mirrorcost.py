"""What a way costs this machine: CPU time, memory, bytes on the line."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tunnelkit import lab

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """cpu_s: of the processes on the laptop's side, without the ssh master that all share.
    line_bytes: both ways, as the proxy counts them. rss_bytes: at the end, or the most."""

    cpu_s: float = 0.0
    line_bytes: int = 0
    rss_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        rss_bytes = max(self.rss_bytes, other.rss_bytes)
        return Cost(self.cpu_s + other.cpu_s, self.line_bytes + other.line_bytes, rss_bytes)

    def __sub__(self, before: Cost) -> Cost:
        """What was spent since then."""
        line_bytes = self.line_bytes - before.line_bytes
        return Cost(self.cpu_s - before.cpu_s, line_bytes, self.rss_bytes)


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += descendants(int(child))
    return found


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process, its living descendants and those it has reaped."""
    total = 0
    for one in descendants(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(value) for value in fields[11:15])
    return total * _TICK_S


def rss_bytes(pid: int) -> int:
    """Resident bytes of a process and all below it."""
    total = 0
    for one in descendants(pid):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")


def line_bytes(lab_dir: Path) -> int:
    """Bytes that have crossed the proxy, both ways."""
    return sum(lab.traffic_bytes(lab_dir))
