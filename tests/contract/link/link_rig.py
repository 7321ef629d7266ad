"""A small cluster of real sshds on loopback: bastion, login and two nodes.

Every sshd is unprivileged (or root's own, when the tests run as root), has a
throw-away host key and logs each authentication, so that tests can count them.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tunnelkit.lab.ssh import quick_kex

#: For tests of what one backend alone has: `@OPENSSH` above a test that uses `connect`.
OPENSSH = pytest.mark.parametrize("connect", ["openssh"], indirect=True)
PARAMIKO = pytest.mark.parametrize("connect", ["paramiko"], indirect=True)

HOSTS = ("bastion", "login", "node1", "node2")


def find_sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def keygen(path: Path, passphrase: str = "") -> Path:
    path.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", path.name, "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return path


def fingerprint(public_key: Path) -> str:
    out = subprocess.run(
        ["ssh-keygen", "-lf", str(public_key)], check=True, capture_output=True, text=True
    )
    return out.stdout.split()[1]


def wait_for(condition, *, timeout_s: float = 10.0, what: str = "condition"):
    """Poll until `condition()` is true; for what has no event to wait on."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {timeout_s} s"
        time.sleep(0.01)
    return value


@contextlib.contextmanager
def leftovers(cluster: Cluster, text: str) -> Iterator[None]:
    """End the far processes that name `text`: sshd lets them live on without a link."""
    try:
        yield
    finally:
        for pid in cluster.processes_in(text):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def cut(link) -> None:
    """Break a link's connection to the login host, as a killed ssh or a reset does."""
    if hasattr(link._login.connection, "control_path"):
        os.kill(link._login.connection.pid, signal.SIGKILL)
    else:
        link._login.connection.transport._buffered._sock.shutdown(socket.SHUT_RDWR)


@dataclass
class Sshd:
    """One sshd child process, restartable on the same port."""

    name: str
    home: Path
    options: list[str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.home / f"{self.name}.log"

    @property
    def host_key(self) -> Path:
        return self.home / f"{self.name}_host_key"

    def start(self) -> None:
        if os.getuid() == 0:
            os.makedirs("/run/sshd", 0o755, exist_ok=True)
        config = self.home / f"{self.name}.sshd_config"
        config.write_text(
            "\n".join(
                [
                    "ListenAddress 127.0.0.1",
                    f"Port {self.port}",
                    f"HostKey {self.host_key}",
                    f"AuthorizedKeysFile {self.home}/authorized_keys",
                    "Subsystem sftp internal-sftp",
                    "PidFile none",
                    *quick_kex(),
                    "UsePAM no",
                    "StrictModes no",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    "PermitRootLogin yes",
                    "LogLevel VERBOSE",
                    *self.options,
                ]
            )
            + "\n"
        )
        sshd = find_sshd()
        assert sshd is not None
        self.process = subprocess.Popen(
            [sshd, "-D", "-f", str(config), "-E", str(self.log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(self._answers, what=f"sshd {self.name}")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                return sock.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self, *, connections: bool = False) -> None:
        """End the listener; with `connections` its per-connection children too."""
        if self.process is None:
            return
        children = _descendants(self.process.pid) if connections else []
        self.process.terminate()
        self.process.wait(10)
        self.process = None
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def freeze(self) -> list[int]:
        """Stop the processes that serve connections: as a network that swallows all. `stop`
        ends them."""
        assert self.process is not None
        stopped = []
        for pid in _descendants(self.process.pid):
            # A connection's process may just have ended.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        return stopped

    def authentications(self) -> int:
        if not self.log.exists():
            return 0
        return self.log.read_text(errors="replace").count("Accepted publickey")


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


class Cluster:
    """The four sshds, a client ssh_config, and what tests need to look behind the curtain."""

    def __init__(self, home: Path, options: dict[str, list[str]] | None = None) -> None:
        self.home = home
        self.user = getpass.getuser()
        self.client_key = keygen(home / "client_key")
        self.login_key = keygen(home / "login_to_node_key")
        self.sshds = {name: Sshd(name, home, list((options or {}).get(name, []))) for name in HOSTS}
        for sshd in self.sshds.values():
            keygen(sshd.host_key)
        (home / "authorized_keys").write_text(
            "".join(
                key.with_suffix(".pub").read_text() for key in (self.client_key, self.login_key)
            )
        )
        self.known_hosts = home / "known_hosts"
        self.write_known_hosts()
        self.ssh_config = self.write_ssh_config("ssh_config")
        self._write_login_ssh()

    def __getitem__(self, name: str) -> Sshd:
        return self.sshds[name]

    def start(self) -> None:
        for sshd in self.sshds.values():
            sshd.start()

    def stop(self) -> None:
        for sshd in self.sshds.values():
            sshd.stop(connections=True)

    def write_known_hosts(self, *, without: tuple[str, ...] = ()) -> None:
        self.known_hosts.write_text(
            "".join(
                f"[127.0.0.1]:{sshd.port} {sshd.host_key.with_suffix('.pub').read_text()}"
                for sshd in self.sshds.values()
                if sshd.name not in without
            )
        )

    def write_ssh_config(
        self,
        name: str,
        *,
        key: Path | None = None,
        strict: str = "yes",
        node_jump: bool = True,
        known_hosts: Path | None = None,
        extra: str = "",
    ) -> Path:
        """A client's ssh_config; `extra` comes first and so wins."""
        lines = [extra] if extra else []
        for sshd in self.sshds.values():
            lines += [f"Host {sshd.name}", "  HostName 127.0.0.1", f"  Port {sshd.port}"]
            if node_jump and sshd.name.startswith("node"):
                lines.append("  ProxyJump login")
        lines += [
            "Host *",
            f"  User {self.user}",
            f"  IdentityFile {key or self.client_key}",
            "  IdentitiesOnly yes",
            "  IdentityAgent none",
            f"  UserKnownHostsFile {known_hosts or self.known_hosts}",
            "  GlobalKnownHostsFile /dev/null",
            f"  StrictHostKeyChecking {strict}",
        ]
        path = self.home / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return path

    def _write_login_ssh(self) -> None:
        """`ssh node1` as typed on the login host: a wrapper first on its PATH."""
        config = self.write_ssh_config("login.ssh_config", key=self.login_key, node_jump=False)
        bin_dir = self.home / "login_bin"
        bin_dir.mkdir(exist_ok=True)
        wrapper = bin_dir / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        wrapper.chmod(0o755)
        self.sshds["login"].options.append(f"SetEnv PATH={bin_dir}:{os.environ['PATH']}")

    def break_chain(self) -> None:
        """Make `ssh NODE` impossible on the login host."""
        (self.home / "login_bin" / "ssh").write_text("#!/bin/sh\necho no way >&2\nexit 255\n")

    def processes_in(self, text: str) -> list[int]:
        """Live processes that name `text` in their argv (a control path, say)."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    argv = (entry / "cmdline").read_bytes()
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if text.encode() in argv and state != "Z" and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
        return found


async def echo(stream, data: bytes) -> bytes:
    """Send all of `data`, end, and collect what comes back."""
    loop = asyncio.get_running_loop()
    with socket.socket(fileno=os.dup(stream.fileno())) as sock:
        sock.setblocking(False)

        async def send() -> None:
            # A command that is done already has hung up.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await loop.sock_sendall(sock, data)
                sock.shutdown(socket.SHUT_WR)

        sending = asyncio.create_task(send())
        received = bytearray()
        while chunk := await loop.sock_recv(sock, 1 << 16):
            received += chunk
        await sending
        return bytes(received)


async def refused(connect, kind, **changes):
    """The error of a link that can't be opened; it has a hint and fits on a line."""
    link = await connect(opened=False, **changes)
    with pytest.raises(kind) as caught:
        await link.open()
    assert not await link.is_alive()
    error = caught.value
    assert error.hint and "\n" not in error.one_line()
    return error
