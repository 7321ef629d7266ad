"""The ways to debug that `scripts/bench f5` compares, each armed and idle before its F5."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from benchlib.f5editor import Target
from benchlib.rig import (
    NODE,
    BenchProject,
    Rig,
    background,
    end_listener,
    free_port,
    listener,
    wait_until,
)
from benchlib.rig import TK as TK_PROGRAM

TK = "tk loop"
STOCK = "debugpy --listen through ssh -J -L"
LOCAL = "debugpy --listen on this machine"
#: What is left of starting up after the debuggee says that it is armed.
_SETTLE_S = 0.5
#: The adapter listens before the debuggee has reached it; stock says nothing of that.
_STOCK_SETTLE_S = 1.0
_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Way(Protocol):
    """`arm` returns once a debuggee waits at `target`, idle."""

    name: str
    target: Target

    def arm(self) -> None: ...


class TkWay:
    """The session's port, with the standby that `tk loop` makes by itself."""

    name = TK

    def __init__(self, rig: BenchProject, script: Path, line: int) -> None:
        self._rig = rig
        mappings = ((str(rig.project), str(rig.remote_project)),)
        self.target = Target(rig.debug_port, str(script), line, mappings)

    def arm(self) -> None:
        self._rig.tk("ready")
        time.sleep(_SETTLE_S)


class StockWay:
    """A shell's `while true; do python -m debugpy --listen ...; done`, here or far."""

    def __init__(self, name: str, target: Target, port: int) -> None:
        self.name = name
        self.target = target
        self._port = port

    def arm(self) -> None:
        """A new listener, and not that of a debuggee on its way out."""
        seen, since = listener(self._port), time.monotonic()

        def settled() -> bool:
            nonlocal seen, since
            now = listener(self._port)
            if now != seen:
                seen, since = now, time.monotonic()
            return now is not None and time.monotonic() - since > _STOCK_SETTLE_S

        wait_until(settled, self.name, timeout_s=60.0)


@contextmanager
def tk_way(
    rig: BenchProject, script: Path, line: int, *options: str, python: str = "python"
) -> Iterator[TkWay]:
    """`tk loop` on the script while the context lasts."""
    command = [python, "-m", "debugpy", "--wait-for-client", script.name]
    argv = [TK_PROGRAM, "loop", *options, *command]
    with background(argv, cwd=rig.project, env=rig.environ, **_QUIET):
        wait_until(lambda: rig.status()["loops"], "tk loop")
        rig.tk("ready", "--sync")
        yield TkWay(rig, script, line)
    wait_until(lambda: not rig.status()["loops"], "the end of tk loop")


def listen_command(port: int, script: str) -> str:
    """What people run on the node."""
    words = ["python", "-m", "debugpy", "--listen", f"127.0.0.1:{port}", "--wait-for-client"]
    return shlex.join([*words, script])


@contextmanager
def local_way(rig: Rig, script: Path, line: int) -> Iterator[StockWay]:
    """debugpy with no ssh anywhere, and nothing of tk."""
    port = free_port()
    shell = f"while true; do {listen_command(port, str(script))}; done"
    with background(["sh", "-c", shell], cwd=rig.project, env=python_first(), **_QUIET) as loop:
        try:
            yield StockWay(LOCAL, Target(port, str(script), line), port)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(loop.pid, signal.SIGTERM)
    end_listener(port, f"the end of {LOCAL}")


def python_first() -> dict[str, str]:
    """An environment whose `python` is the one that runs this, as on the lab's node."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path}


class Tunnel:
    """One `ssh -J login -L ... node`, kept open, and commands beside it. Made by `tunnel`."""

    def __init__(self, rig: Rig, socket: Path, near: int, far: int) -> None:
        self.near = near
        self.far = far
        self._rig = rig
        self._socket = socket

    def argv(self, command: str) -> list[str]:
        """A command on the node, over the connection that is there."""
        return self._rig.ssh("-S", str(self._socket), "--", NODE, command)

    def run(self, command: str) -> int:
        """Run a command on the node to its end; its exit code."""
        null = subprocess.DEVNULL
        done = subprocess.run(
            self.argv(command), stdin=null, stdout=null, stderr=null, check=False, timeout=60.0
        )
        return done.returncode


@contextmanager
def tunnel(rig: Rig) -> Iterator[Tunnel]:
    """The tunnel of a person without tk: `near` here leads to `far` on the node."""
    near, far, socket = free_port(), free_port(), rig.project.parent / "stock.sock"
    forward = f"127.0.0.1:{near}:127.0.0.1:{far}"
    words = ("-M", "-S", str(socket), "-N", "-o", "ExitOnForwardFailure=yes", "-J", "login")
    # It would tell each refusal, which are counted elsewhere.
    with background(rig.ssh(*words, "-L", forward, "--", NODE), **_QUIET):
        wait_until(lambda: listener(near) is not None, "ssh -J -L")
        yield Tunnel(rig, socket, near, far)


@contextmanager
def far_shell(way: Tunnel, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell command on the node, ended with all that it started."""
    argv = way.argv(f"echo $$; {command}")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with background(argv, **options) as process:
        assert process.stdout is not None
        group = int(process.stdout.readline())
        try:
            yield process
        finally:
            # sshd gives every command a session of its own.
            way.run(f"kill -TERM -- -{group}")
    end_listener(way.far, f"the end of {STOCK}")


@contextmanager
def stock_way(rig: Rig, way: Tunnel, script: Path, line: int) -> Iterator[StockWay]:
    """The stock loop on the node, reached through the tunnel."""
    remote = str(rig.remote_project / script.name)
    mappings = ((str(rig.project), str(rig.remote_project)),)
    target = Target(way.near, str(script), line, mappings)
    with far_shell(way, f"while true; do {listen_command(way.far, remote)} >&2; done"):
        yield StockWay(STOCK, target, way.far)
