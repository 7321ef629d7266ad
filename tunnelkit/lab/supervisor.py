"""Parent of the lab's daemons: `python -m tunnelkit.lab.supervisor SOCKET`.

It starts daemons on request and keeps them. As a subreaper it also becomes
the parent of every process that daemonizes below it, so that the tree under this one pid is
the whole lab and `tk lab down` misses nothing.

Protocol: one JSON object a line over a 0600 Unix socket, one answer a line.
  {"name", "argv", "env", "log"}  ->  {"pid"} or {"error"}
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

from tunnelkit.errors import TunnelkitError
from tunnelkit.lab.programs import own_program

_PR_SET_CHILD_SUBREAPER = 36
_LINE_LIMIT_BYTES = 1 << 20


class _Order(TypedDict):
    name: str
    argv: list[str]
    env: dict[str, str]
    log: str


def main(argv: list[str]) -> int:
    """Listen, go to the background (the parent's exit says: listening), serve until TERM."""
    listener = socket.socket(socket.AF_UNIX)
    os.umask(0o077)
    listener.bind(argv[1])
    listener.listen(8)
    if pid := os.fork():
        print(pid)
        return 0
    os.setsid()
    os.chdir("/")
    os.dup2(0, 1)  # /dev/null: our starter waits for the end of what we say
    _become_subreaper()
    _serve(listener)
    return 0


def _become_subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _serve(listener: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        connection, _ = listener.accept()  # restarted by Python after each SIGCHLD
        with connection:
            connection.settimeout(10)
            try:
                reply = _answer(_read_line(connection))
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except OSError:
                continue  # the client went away; the daemons stay


def _answer(line: bytes) -> dict[str, object]:
    try:
        return {"pid": _start(json.loads(line))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"error": str(error) or type(error).__name__}


def _start(order: _Order) -> int:
    with open(order["log"], "ab") as log:
        child = subprocess.Popen(
            order["argv"],
            env=order["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    # `_reap` waits for it; without this Popen's destructor would complain that it still runs.
    child.returncode = 0
    return child.pid


def _reap(_signum: int, _frame: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = connection.recv(65536)
        if not chunk or len(data) > _LINE_LIMIT_BYTES:
            break
        data += chunk
    return data


def launch(socket_path: Path, *, env: dict[str, str], log: Path) -> int:
    """Start a supervisor; return its pid once it listens. Raises TunnelkitError with its words."""
    done = subprocess.run(
        [*own_program("tunnelkit.lab.supervisor"), str(socket_path)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log.open("ab"),  # not a pipe: the background process keeps it open
        check=False,
    )
    if done.returncode:
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise TunnelkitError(
            "the lab's supervisor did not start",
            cause=words[-1] if words else None,
            hint="its log is in the lab's directory, log/",
        )
    return int(done.stdout)


def start(socket_path: Path, *, name: str, argv: list[str], env: dict[str, str], log: Path) -> int:
    """Have the supervisor start a daemon; return its pid. Raises TunnelkitError."""
    order: _Order = {"name": name, "argv": argv, "env": env, "log": str(log)}
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(socket_path))
            client.sendall(json.dumps(order).encode() + b"\n")
            reply = json.loads(_read_line(client) or b"{}")
    except OSError as error:
        raise TunnelkitError(
            f"the lab's supervisor does not start {name}",
            cause=error.strerror or str(error),
            hint="`tk lab down`, then `tk lab up`",
        ) from None
    if "pid" not in reply:
        raise TunnelkitError(
            f"the lab's {name} could not be started",
            cause=reply.get("error"),
            hint="its log is in the lab's directory, log/",
        )
    return int(reply["pid"])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
