"""The demo's processes, and nobody else's: found, cut, ended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tunnelkit.demo.places import Places
from tunnelkit.lab.processes import ProcessId, end_all, identify, is_alive, lab_processes, send

#: The agent's socket lies outside of the demo's directory (agent/links/socket_dir.py).
_AGENT_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only looked at


def processes(places: Places) -> set[ProcessId]:
    """Return the processes of the demo, never this one or its ancestors.

    They carry its directory in their environment or command line, or descend from one that does.
    """
    named = {
        found
        for pid in _pids()
        if _names(pid, os.fsencode(places.base))
        if (found := identify(pid))
    }
    return lab_processes(str(places.lab), named - _lineage())


def tunnels(daemon_pid: int, program: str = "ssh") -> list[ProcessId]:
    """The processes below a session's daemon that join it to the cluster: ssh, or kubectl."""
    daemon = identify(daemon_pid)
    below = lab_processes("", {daemon}) if daemon else set()
    found = [process for process in below if _read(process.pid, "comm").strip() == program.encode()]
    return sorted(found, key=lambda process: process.pid)


def kill(victims: list[ProcessId]) -> None:
    """Send KILL to each."""
    for process in victims:
        send(process, signal.SIGKILL)


def end(places: Places) -> None:
    """End whatever of the demo still runs. Raises TimeoutExpired if something won't."""
    end_all(lambda: processes(places), grace_s=1.0)


def wait_none(places: Places, known: set[ProcessId], timeout_s: float = 5.0) -> list[str]:
    """Return what still runs or exists after at most `timeout_s`; see `leftovers`."""
    deadline = time.monotonic() + timeout_s
    while (left := leftovers(places, known)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def leftovers(places: Places, known: set[ProcessId]) -> list[str]:
    """Describe what is left: processes of `known` and new ones, files, sockets."""
    alive = {process for process in known if is_alive(process)} | processes(places)
    found = [f"process {p.pid} ({_title(p.pid)})" for p in sorted(alive, key=lambda p: p.pid)]
    if places.lab.exists():
        found.append(str(places.lab))
    session = places.session()
    if session is not None:
        pattern = f"tunnelkit-{os.getuid()}/*-{session.id}.sock"
        found += [str(path) for top in _AGENT_DIRECTORIES for path in Path(top).glob(pattern)]
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _names(pid: int, base: bytes) -> bool:
    return base in _read(pid, "environ") or base in _read(pid, "cmdline")


def _lineage() -> set[ProcessId]:
    """Return this process and its ancestors."""
    found, pid = set(), os.getpid()
    while pid > 0 and (process := identify(pid)):
        found.add(process)
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
    return found


def _title(pid: int) -> str:
    words = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return words[:60] or "ended just now"


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
