"""A lab of the bench's own, a project in it, and the ssh and tk commands that use it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunnelkit import lab
from tunnelkit.lab.layout import LOGIN, LabInfo, Layout
from tunnelkit.lab.state import require

NODE = "node1"
TK = str(Path(sys.executable).parent / "tk")
_LOGIN_DOOR = """Host {login}
  HostName {address}
  Port {port}
  HostKeyAlias [{known_address}]:{known_port}
"""
_TOML = """profile = "lab"

[debug]
port = {port}

[mirror]
remote = "~/{remote}"
"""


class BenchProject:
    """A project that the real tk uses, with its own environment.

    remote_project: the mirrored project as the node sees it. debug_port: where editors connect.
    """

    remote_project: Path

    def __init__(self, project: Path, environ: dict[str, str]) -> None:
        self.project = project
        self.environ = environ
        self.debug_port = free_port()

    def tk(self, *words: str, timeout_s: float = 120.0) -> str:
        """Run tk in the project; return its stdout. Raises RuntimeError if it fails."""
        done = subprocess.run(
            [TK, *words],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"tk {' '.join(words)}: {done.stderr.strip() or done.stdout}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """`tk status --json`."""
        found: dict[str, Any] = json.loads(self.tk("status", "--json"))
        return found


class Rig(BenchProject):
    """One lab and one project, mirrored into ~/`remote`. Made by `rig`."""

    def __init__(self, base: Path, info: LabInfo, remote: str = "bench") -> None:
        self.info = info
        self.remote_project = info.home / remote
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TK_")},
            "TK_CONFIG_DIR": str(info.profile.parents[1]),
            "TK_STATE_DIR": str(base / "state"),
            "TK_RUNTIME_DIR": str(base),
            "TK_LAB_DIR": str(info.dir),
            "TK_LAB_SSH_CONFIG": str(info.ssh_config),
        }
        super().__init__(base / "project", environ)
        self.project.mkdir(parents=True)
        text = _TOML.format(port=self.debug_port, remote=remote)
        (self.project / "tunnelkit.toml").write_text(text)
        self.tk("trust", "--yes")

    def ssh(self, *words: str) -> list[str]:
        """argv of the plain ssh that tk is compared with: the same configuration."""
        return ["ssh", "-F", str(self.info.ssh_config), "-o", "BatchMode=yes", *words]

    def up(self, gpus: int = 1, cpus: int = 2) -> None:
        """`tk up` on the node that all benchmarks use."""
        self.tk("up", NODE, "--gpus", str(gpus), "--cpus", str(cpus))

    def down(self) -> None:
        """`tk down`, and once more where the scheduler of a busy machine was late to confirm."""
        try:
            self.tk("down")
        except RuntimeError as error:
            if "once more" not in str(error):
                raise
            print(f"  {error}", file=sys.stderr)
            self.tk("down")

    @contextmanager
    def session(self, gpus: int = 1, cpus: int = 2) -> Iterator[None]:
        """A session that is up, and down afterwards."""
        self.up(gpus, cpus)
        try:
            yield
        finally:
            self.down()


#: Where the lab and all files are.
DIR_VARIABLE = "TK_BENCH_DIR"


@contextmanager
def rig(rtt_ms: float | None, cpus: int | None = None) -> Iterator[Rig]:
    """A fresh lab, gone afterwards.

    None: without a distance to model ssh dials login's sshd itself, since the lab's proxy is a
    Python process, and its own speed would make all ways look alike. cpus: of each node.
    """
    base = Path(tempfile.mkdtemp(prefix="tkb", dir=os.environ[DIR_VARIABLE]))
    try:
        os.environ["TK_CONFIG_DIR"] = str(base / "config")
        info = lab.up(
            base / "lab",
            rtt_ms=rtt_ms or 0.0,
            cpus=cpus,
            progress=lambda text: print(f"  lab: {text}", file=sys.stderr),
        )
        try:
            if rtt_ms is None:
                _bypass_proxy(info)
            yield Rig(base, info)
        finally:
            lab.down(info.dir)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _bypass_proxy(info: LabInfo) -> None:
    """Let the ssh_config, which tk and plain ssh both use, name login's own sshd."""
    network = require(Layout(info.dir)).network
    door = _LOGIN_DOOR.format(
        login=LOGIN,
        address=network.address[LOGIN],
        port=network.ssh_port[LOGIN],
        known_address=network.proxy[0],
        known_port=network.proxy[1],
    )
    # ssh takes the first value that it meets.
    info.ssh_config.write_text(door + info.ssh_config.read_text())


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def background(argv: list[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, with its group, on leaving: first by its stdin's end."""
    process = subprocess.Popen(  # type: ignore[call-overload]
        argv, stdin=subprocess.PIPE, start_new_session=True, **options
    )
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(10.0)
        if process.stdout is not None:
            process.stdout.close()


_TABLE = Path("/proc/net/tcp")


def listener(port: int, table: Path = _TABLE) -> int | None:
    """The inode of the socket that listens on the port, told without connecting to it; None:
    nobody does. table: that of another network namespace."""
    suffix = f":{port:04X}"
    with table.open(encoding="ascii") as lines:
        next(lines)
        for line in lines:
            fields = line.split()
            if fields[1].endswith(suffix) and fields[3] == "0A":
                return int(fields[9])
    return None


def listens(port: int) -> bool:
    """Whether somebody listens on the port."""
    return listener(port) is not None


def end_listener(port: int, what: str) -> None:
    """Wait for the end of what listens on the port. A hung adapter, in a session of its own, is
    killed. Raises RuntimeError if that does not help."""
    try:
        wait_until(lambda: listener(port) is None, what, timeout_s=10.0)
    except RuntimeError:
        inode = listener(port)
        for fd in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if os.readlink(fd) == f"socket:[{inode}]":
                    os.kill(int(fd.parts[2]), signal.SIGKILL)
        wait_until(lambda: listener(port) is None, what)


def wait_until(condition: object, what: str, timeout_s: float = 30.0) -> None:
    """Poll a condition until it holds. Raises RuntimeError after `timeout_s`."""
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.01)
