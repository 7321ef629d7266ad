"""A memory cgroup on this computer, v2 or v1: its limit, its counts, its processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.simulate.runners.base import MemoryUse

ROOT = Path("/sys/fs/cgroup")
#: The files with counts; those of the other version are not there.
COUNTS = (
    "memory.events",
    "memory.peak",
    "memory.current",
    "memory.oom_control",
    "memory.max_usage_in_bytes",
    "memory.usage_in_bytes",
)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A cgroup with memory counts."""

    path: Path

    @property
    def is_v2(self) -> bool:
        """True for cgroup v2."""
        return (self.path / "memory.events").exists()

    def use(self) -> MemoryUse:
        """Return its counts."""
        return use_of({name: read(self.path / name) for name in COUNTS})

    def pids(self) -> list[int]:
        """Return the processes in it and below it."""
        found: list[int] = []
        for directory, _, files in os.walk(self.path):
            if "cgroup.procs" in files:
                text = read(Path(directory) / "cgroup.procs")
                found += [int(one) for one in text.split() if one.isdigit()]
        return found

    def limit(self) -> int | None:
        """Return its limit; None without one."""
        text = read(self.path / "memory.max") or read(self.path / "memory.limit_in_bytes")
        return int(text) if text.strip().isdigit() else None


def use_of(files: Mapping[str, str]) -> MemoryUse:
    """Return the counts of a cgroup's files by name."""
    events = dict(line.split()[:2] for line in _pairs(files.get("memory.events", "")))
    control = dict(line.split()[:2] for line in _pairs(files.get("memory.oom_control", "")))
    kills = events.get("oom_kill", control.get("oom_kill"))
    at_limit = events.get("oom")
    return MemoryUse(
        _number(files.get("memory.current") or files.get("memory.usage_in_bytes")),
        _number(files.get("memory.peak") or files.get("memory.max_usage_in_bytes")),
        _number(kills),
        _number(at_limit),
    )


def _pairs(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line.split()) == 2]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None


def read(path: Path) -> str:
    """Return a file's text; "" if it can't be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def group_of(pid: int | str = "self") -> MemoryGroup | None:
    """Return the memory cgroup of a process; None if it can't be seen."""
    unified, memory = "", ""
    for line in read(Path(f"/proc/{pid}/cgroup")).splitlines():
        number, names, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not names:
            unified = path
        elif "memory" in names.split(","):
            memory = path
    for base, path, file in (
        (ROOT, unified, "memory.events"),
        (ROOT / "unified", unified, "memory.events"),
        (ROOT / "memory", memory, "memory.oom_control"),
    ):
        place = base / path.lstrip("/")
        if path and (place / file).exists():
            return MemoryGroup(place)
    return None
