"""Search and end of the lab's processes, and of no others.

A process is known by pid and start time together, so that a pid given to a
stranger since is never signalled. A lab's processes are found by three means,
since each alone has a gap: the process tree below the lab's supervisor (a
subreaper, so that daemonized jobs stay below it), the tag in the environment
(where the supervisor was killed; but sshd overwrites its own environment), and
the daemons on record with what descends from them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tunnelkit.errors import TimeoutExpired
from tunnelkit.lab.layout import TAG


@dataclass(frozen=True, slots=True)
class ProcessId:
    """pid and start time (clock ticks since boot, field 22 of /proc/PID/stat)."""

    pid: int
    start: int


def identify(pid: int) -> ProcessId | None:
    """That pid's process, or None if there is none (a zombie counts as none)."""
    found = _stat(pid)
    return found[0] if found else None


def is_alive(process: ProcessId) -> bool:
    """True if exactly that process runs; a zombie or a reused pid is not alive."""
    return identify(process.pid) == process


def _stat(pid: int) -> tuple[ProcessId, int] | None:
    """The process and its parent's pid."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return ProcessId(pid, int(fields[19])), int(fields[1])


def _has_tag(pid: int, tag: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return tag in file.read().split(b"\0")
    except OSError:
        return False


def lab_processes(lab_dir: str, roots: Iterable[ProcessId]) -> set[ProcessId]:
    """Every live process of the lab: `roots`, tagged ones, and all that descends from either.

    Never this process or its ancestors.
    """
    everything: dict[int, tuple[ProcessId, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _stat(int(name))):
            everything[int(name)] = found
    children: dict[int, list[int]] = {}
    for pid, (_, parent) in everything.items():
        children.setdefault(parent, []).append(pid)

    tag = os.fsencode(f"{TAG}={lab_dir}")
    known = set(roots)
    todo = [pid for pid, (p, _) in everything.items() if p in known or _has_tag(pid, tag)]
    members: set[int] = set()
    while todo:
        pid = todo.pop()
        if pid not in members:
            members.add(pid)
            todo.extend(children.get(pid, ()))

    spared = os.getpid()
    while spared in everything:
        members.discard(spared)
        spared = everything[spared][1]
    return {everything[pid][0] for pid in members}


def send(process: ProcessId, signum: signal.Signals) -> None:
    """Signal exactly that process; one that has ended is left alone."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        # The pidfd holds on to whatever has the pid now; the start time says who that is.
        if is_alive(process):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signum)
    finally:
        os.close(fd)


def end_all(
    find: Callable[[], set[ProcessId]], *, grace_s: float, deadline_s: float = 10.0
) -> None:
    """TERM, then after `grace_s` KILL, all that `find` returns, until it returns nothing.

    Asked again each round, since what is ending may still start something. Raises
    TimeoutExpired with the pids if some are there after `deadline_s`.
    """
    started = time.monotonic()
    asked: set[ProcessId] = set()
    while alive := find():
        spent_s = time.monotonic() - started
        if spent_s > deadline_s:
            raise TimeoutExpired(
                "processes of the lab don't end",
                cause="pids " + ", ".join(str(p.pid) for p in sorted(alive, key=lambda p: p.pid)),
                hint="run `tk lab down` again",
            )
        for process in alive:
            if spent_s > grace_s:
                send(process, signal.SIGKILL)
            elif process not in asked:
                asked.add(process)
                send(process, signal.SIGTERM)
        time.sleep(0.02)
