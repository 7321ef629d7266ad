"""Checks of local ports: is a port free, and which process has it."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path
from typing import NamedTuple

from tunnelkit.errors import UsageError

_LISTEN = "0A"
_DAEMON = b"tunnelkit.session.daemon"


class PortOwner(NamedTuple):
    """A process that listens on a port."""

    pid: int
    program: str
    is_session: bool = False


def is_free(port: int) -> bool:
    """True unless another listener has 127.0.0.1:`port`."""
    with socket.socket() as sock:
        # As ssh does, so that a connection in TIME_WAIT doesn't count as taken.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def owner(port: int) -> PortOwner | None:
    """Return the process that listens on `port`, if /proc shows it (Linux, own processes)."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _holds(process, inodes):
            return PortOwner(int(process.name), _program(process), _is_session(process))
    return None


def check_free(port: int) -> None:
    """Raise UsageError, naming the owner, if 127.0.0.1:`port` is taken, or not for this user."""
    if port < _first_port() and os.geteuid() != 0:
        raise UsageError(
            f"local port {port} is for root",
            hint=f"choose one from {_first_port()} on, such as {port + 8000}:{port}",
        )
    if is_free(port):
        return
    by = owner(port)
    cause, first = "another program uses it", "end that program"
    if by is not None and by.is_session:
        cause, first = f"a session of tk (pid {by.pid}) listens on it", "tk down in its project"
    elif by is not None:
        cause = f"{by.program} (pid {by.pid}) listens on it"
    raise UsageError(
        f"local port {port} is taken", cause=cause, hint=f"{first} or choose another local port"
    )


def _first_port() -> int:
    """Return the first port for ordinary users."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text("ascii"))
    except (OSError, ValueError):
        return 1024 if sys.platform == "linux" else 0


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _holds(process: Path, inodes: set[str]) -> bool:
    try:
        fds = list((process / "fd").iterdir())
    except OSError:
        return False  # another user's, or gone
    for fd in fds:
        try:
            if os.readlink(fd) in inodes:
                return True
        except OSError:
            continue
    return False


def _is_session(process: Path) -> bool:
    """True for a daemon of tk: `python -m tunnelkit.session.daemon PROJECT`."""
    try:
        return _DAEMON in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _program(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a program"
