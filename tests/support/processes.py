"""Looking at the machine's processes from outside: what a test left, and what it may end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """A live process (no zombie) as /proc showed it; `environ` is empty where it is not ours."""

    pid: int
    parent: int
    group: int
    argv: tuple[str, ...]
    environ: frozenset[str]

    @property
    def program(self) -> str:
        """The program's name; what a daemon wrote over its argv counts as well (`sshd:`)."""
        return os.path.basename(self.argv[0].split(" ")[0]) if self.argv else ""

    def __str__(self) -> str:
        return f"{self.pid} {' '.join(self.argv)[:160]}"


def look() -> dict[int, Seen]:
    """Every live process but kernel threads and ourselves."""
    found = (_seen(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {one.pid: one for one in found if one and one.argv and one.pid != os.getpid()}


def _seen(pid: int) -> Seen | None:
    try:
        stat = _read(pid, "stat").rpartition(b")")[2].split()
        if stat[0] in b"ZX":
            return None
        argv = _words(_read(pid, "cmdline"))
    except OSError:
        return None
    try:
        environ = frozenset(_words(_read(pid, "environ")))
    except OSError:
        environ = frozenset()
    return Seen(pid, int(stat[1]), int(stat[2]), argv, environ)


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def _words(data: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0") if word)


def descendants(roots: Iterable[int]) -> list[Seen]:
    """All that descends from these pids, without them."""
    seen = look()
    children: dict[int, list[Seen]] = {}
    for one in seen.values():
        children.setdefault(one.parent, []).append(one)
    found: list[Seen] = []
    todo = list(roots)
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child.pid)
    return found


def in_group(group: int) -> list[Seen]:
    """The live processes of a process group."""
    return [one for one in look().values() if one.group == group]


def is_alive(pid: int) -> bool:
    """True while the process is there and no zombie."""
    return _seen(pid) is not None


def kill(processes: Iterable[Seen | int]) -> int:
    """SIGKILL; how many were there to be killed."""
    killed = 0
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process if isinstance(process, int) else process.pid, signal.SIGKILL)
            killed += 1
    return killed


def until(condition: Callable[[], T], what: str, deadline_s: float = 20.0) -> T:
    """Poll a condition that has no event to wait for; return its first true value."""
    ends = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < ends, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.02)
    return value


def listening_ports(pids: Iterable[int]) -> dict[int, int]:
    """TCP ports on which these processes listen, and whose each is."""
    inodes: dict[str, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    inodes[os.readlink(f"/proc/{pid}/fd/{fd}")] = pid
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                owner = inodes.get(f"socket:[{fields[9]}]")
                if fields[3] == "0A" and owner is not None:
                    found[int(fields[1].rpartition(":")[2], 16)] = owner
    return found
