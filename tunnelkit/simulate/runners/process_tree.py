"""The processes of a run and their memory: by /proc, or by ps where there is none (macOS)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Where there is one, the lists of children are read: cheaper than a table of all processes.
_PROC = Path("/proc/self/stat")
#: In the environment of each of them.
MARK_VARIABLE = "TK_SIMULATE_RUN"


class ProcessTree:
    """All processes below a first one, and those that they left behind.

    A process that was seen once stays, even when its parent has ended: it is known by its start
    time, so that a later process of the same number is another one."""

    def __init__(self, first: int) -> None:
        self._seen: dict[int, str] = {first: _born(first)}
        self._first = first

    def look(self) -> list[int]:
        """Return the living ones, the first one included."""
        if not _PROC.exists():
            return self._by_ps()
        alive = {pid: born for pid, born in self._seen.items() if born and _born(pid) == born}
        todo = list(alive)
        while todo:
            for pid in _children(todo.pop()):
                if pid not in alive:
                    alive[pid] = _born(pid)
                    todo.append(pid)
        self._seen = {pid: born for pid, born in alive.items() if born}
        return list(self._seen)

    def all_of_session(self, mark: str) -> list[int]:
        """Return also those in its session, and those whose environment has `mark`: slower."""
        found = set(self.look())
        for name in os.listdir("/proc") if _PROC.exists() else ():
            if name.isdigit() and int(name) not in found and int(name) != os.getpid():
                pid = int(name)
                if _session(pid) == self._first or _is_marked(pid, mark):
                    found.add(pid)
                    self._seen[pid] = _born(pid)
        return list(found)

    def _by_ps(self) -> list[int]:
        rows = _ps("pid=,ppid=,rss=")
        found = {self._first}
        grown = True
        while grown:
            more = {pid for pid, parent, _ in rows if parent in found} - found
            grown = bool(more)
            found |= more
        living = {pid for pid, _, _ in rows}
        return [pid for pid in found if pid in living]


def memory_of(pids: Iterable[int], limit_bytes: int | None = None) -> dict[int, int]:
    """Return the resident bytes of each process.

    Pages that several share count in each, so near the limit they are counted by shares."""
    if not _PROC.exists():
        wanted = set(pids)
        return {pid: kilo * 1024 for pid, kilo, _ in _ps("pid=,rss=,ppid=") if pid in wanted}
    found = {pid: _resident(pid) for pid in pids}
    if limit_bytes is not None and sum(found.values()) > limit_bytes * 0.9:
        return {pid: _share(pid, resident) for pid, resident in found.items()}
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _share(pid: int, resident: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return resident


def _stat(pid: int) -> list[str]:
    try:
        # The name in brackets may hold blanks and brackets.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> str:
    """Return the start time of a process; "" if it has ended."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if len(fields) > 3 and fields[0] not in "ZX" else 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            text = Path(f"/proc/{pid}/task/{task}/children").read_text()
        except OSError:
            continue
        found += [int(one) for one in text.split()]
    return found


def _is_marked(pid: int, mark: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK_VARIABLE}={mark}".encode() in environ.split(b"\0")


def _ps(columns: str) -> list[tuple[int, int, int]]:
    done = subprocess.run(
        ["ps", "-A", "-o", columns], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    rows = []
    for line in done.stdout.decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) == 3 and all(word.isdigit() for word in words):
            rows.append((int(words[0]), int(words[1]), int(words[2])))
    return rows
