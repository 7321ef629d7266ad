"""The ways to keep a directory on the cluster equal that `scripts/bench mirror` compares.

All but tk share one ssh master to login, as a person's ControlMaster would be.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchlib.mirrorcost import Cost, line_bytes, rss_bytes, tree_cpu_s
from benchlib.rig import Rig, background, wait_until

TK = "tk"
FILES_FROM = "rsync --files-from, started at the save"
RSYNC = "rsync -a of all, started at the save"
LSYNCD_0, LSYNCD_1 = "lsyncd, delay 0", "lsyncd, delay 1"
UNISON = "unison"
_QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Way(Protocol):
    """`local` is what is edited, `remote` where it arrives. `save` is told of each edit after
    it was made: those that no daemon sees start their transfer there."""

    name: str
    local: Path
    remote: Path

    def save(self, path: str) -> None: ...

    def cost(self) -> Cost:
        """Since its start."""
        ...


class TkWay:
    """A session that is up."""

    name = TK

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.local, self.remote = rig.project, rig.remote_project
        self.pid = int(str(rig.status()["pid"]))

    def save(self, path: str) -> None:
        pass

    def cost(self) -> Cost:
        return Cost(tree_cpu_s(self.pid), line_bytes(self._rig.info.dir), rss_bytes(self.pid))


class DaemonWay:
    """lsyncd or unison, running."""

    def __init__(self, name: str, mux: Mux, local: Path, remote: Path, pid: int) -> None:
        self.name = name
        self.local, self.remote = local, remote
        self._mux, self.pid = mux, pid

    def save(self, path: str) -> None:
        pass

    def cost(self) -> Cost:
        return Cost(tree_cpu_s(self.pid), self._mux.line_bytes(), rss_bytes(self.pid))


class RsyncWay:
    """One rsync an edit: of the edited file alone, or of all."""

    def __init__(self, name: str, mux: Mux, local: Path, remote: Path) -> None:
        self.name = name
        self.local, self.remote = local, remote
        self._mux = mux
        self._cost = Cost()

    def save(self, path: str) -> None:
        listed = [path] if self.name == FILES_FROM else None
        cost = self._mux.rsync(self.local, self.remote, listed)
        self._cost.cpu_s += cost.cpu_s
        self._cost.rss_bytes = max(self._cost.rss_bytes, cost.rss_bytes)

    def cost(self) -> Cost:
        return Cost(self._cost.cpu_s, self._mux.line_bytes(), self._cost.rss_bytes)


class Mux:
    """One ssh master to login. Made by `mux`."""

    def __init__(self, rig: Rig, socket: Path) -> None:
        self._rig = rig
        self._socket = socket

    @property
    def shell(self) -> list[str]:
        """ssh and its options, without the host."""
        return self._rig.ssh("-S", str(self._socket))

    def line_bytes(self) -> int:
        return line_bytes(self._rig.info.dir)

    def run(self, command: str) -> None:
        """A command on login. Raises CalledProcessError."""
        argv = [*self.shell, "--", "login", command]
        subprocess.run(argv, stdin=subprocess.DEVNULL, check=True, **_QUIET)

    def rsync(self, local: Path, remote: Path, listed: list[str] | None = None) -> Cost:
        """`rsync -a` to its end. Raises RuntimeError."""
        argv = ["rsync", "-a", "--exclude=.git", "-e", shlex.join(self.shell)]
        if listed is not None:
            argv.append("--files-from=-")
        process = subprocess.Popen(
            [*argv, f"{local}/", f"login:{remote}/"], stdin=subprocess.PIPE, **_QUIET
        )
        assert process.stdin is not None
        process.stdin.write("".join(f"{path}\n" for path in listed or ()).encode())
        process.stdin.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"rsync: exit code {process.returncode}")
        return Cost(used.ru_utime + used.ru_stime, 0, used.ru_maxrss * 1024)


@contextmanager
def mux(rig: Rig) -> Iterator[Mux]:
    """The master, until the end of the context."""
    socket = rig.info.dir.parent / "mux.sock"
    words = ("-M", "-S", str(socket), "-N")
    with background(rig.ssh(*words, "--", "login"), **_QUIET):
        wait_until(socket.exists, "ssh -M")
        yield Mux(rig, socket)


@contextmanager
def rsync_way(name: str, master: Mux, local: Path, remote: Path) -> Iterator[RsyncWay]:
    """After a first copy."""
    master.rsync(local, remote)
    yield RsyncWay(name, master, local, remote)


@contextmanager
def lsyncd_way(name: str, master: Mux, local: Path, remote: Path) -> Iterator[DaemonWay]:
    """lsyncd, once it has looked at all and watches."""
    shell = local.parent / "ssh"
    shell.write_text(f'#!/bin/sh\nexec {shlex.join(master.shell)} "$@"\n')
    shell.chmod(0o700)
    log = local.parent / f"{local.name}.lsyncd.log"
    config = local.parent / f"{local.name}.lsyncd.lua"
    delay = 0 if name == LSYNCD_0 else 1
    extra = '_extra = {"--exclude=.git"}'
    config.write_text(
        f'settings {{ nodaemon = true, logfile = "{log}" }}\n'
        f'sync {{ default.rsync, source = "{local}", target = "login:{remote}/", '
        f'delay = {delay}, rsync = {{ archive = true, rsh = "{shell}", {extra} }} }}\n'
    )
    master.rsync(local, remote)
    with background(["lsyncd", "-log", "Normal", str(config)], **_QUIET) as process:
        wait_until(lambda: log.exists() and "finished" in log.read_text(), name, timeout_s=120.0)
        yield DaemonWay(name, master, local, remote, process.pid)


@contextmanager
def unison_way(name: str, master: Mux, local: Path, remote: Path) -> Iterator[DaemonWay]:
    """unison -repeat, once it has looked at all."""
    master.rsync(local, remote)
    repeat = unison_repeat()
    argv = ["unison", str(local), f"ssh://login/{remote}", "-batch", "-times", "-silent"]
    argv += ["-ignore", "Name .git"]
    argv += ["-sshargs", shlex.join(master.shell[1:]), "-repeat", repeat]
    environ = {**os.environ, "UNISON": str(local.parent / "unison")}
    with background(argv, env=environ, **_QUIET) as process:
        # Its first pass ends with the archive of both sides.
        archives = local.parent / "unison"
        wait_until(lambda: list(archives.glob("ar*")), name, timeout_s=120.0)
        time.sleep(1.0)
        yield DaemonWay(name, master, local, remote, process.pid)


def unison_repeat() -> str:
    """How it learns of edits: by events where it has its watcher, else by looking."""
    return "watch" if shutil.which("unison-fsmonitor") else "1"


def missing() -> dict[str, str]:
    """Ways that can't be measured here -> why."""
    wanted = {LSYNCD_0: "lsyncd", LSYNCD_1: "lsyncd", UNISON: "unison"}
    return {
        way: f"{name} is not installed" for way, name in wanted.items() if not shutil.which(name)
    }
