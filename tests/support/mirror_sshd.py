"""A real sshd for one test of the mirror, and the way to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.logins import Budget, check, file_log
from tests.support.ports import free_port
from tunnelkit.errors import ConnectionFailed, TimeoutExpired
from tunnelkit.lab.ssh import quick_kex
from tunnelkit.model import Completed
from tunnelkit.remote_command import remote_command

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


class Sshd:
    """An sshd of this user on loopback, with throw-away keys."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = file_log("127.0.0.1", directory / "sshd.log")
        for name in ("host_key", "client key"):  # the space tests the quoting
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)],
                check=True,
            )
        host_key = (directory / "host_key.pub").read_text()
        (directory / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key}")
        shutil.copy(directory / "client key.pub", directory / "authorized_keys")
        (directory / "authorized_keys").chmod(0o600)
        (directory / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {directory}/host_key\n"
            f"AuthorizedKeysFile {directory}/authorized_keys\nPidFile none\nUsePAM no\n"
            + "".join(f"{line}\n" for line in quick_kex())
            + "LogLevel VERBOSE\n"
            "PasswordAuthentication no\nStrictModes no\nSubsystem sftp internal-sftp\n"
            "PermitRootLogin prohibit-password\nMaxStartups 100\n"
            # Else each command runs this user's ~/.bashrc, whatever that does.
            f"SetEnv HOME={directory}\n"
        )
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)

    @classmethod
    def known(cls, directory: Path, port: int) -> Sshd:
        """One that another process runs: to dial it."""
        made = cls.__new__(cls)
        made.directory, made.port, made.process = directory, port, None
        return made

    def start(self) -> None:
        log = open(self.directory / "sshd.log", "ab")  # noqa: SIM115
        with log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")],
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            address = ("127.0.0.1", self.port)
            with contextlib.suppress(OSError), socket.create_connection(address, 5) as sock:
                if sock.recv(4) == b"SSH-":
                    return
            assert self.process.poll() is None, (self.directory / "sshd.log").read_text()
            time.sleep(0.02)
        raise AssertionError("sshd did not start")

    def stop(self) -> None:
        """End the listener and every connection that it holds; its port is free then."""
        if self.process is None:
            return
        # Halted it makes no child that we would not know; one just made still listens.
        self.process.send_signal(signal.SIGSTOP)
        # sshd's children for sessions are in sessions of their own
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        self.process = None
        deadline = time.monotonic() + 10
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                socket.create_connection(("127.0.0.1", self.port)).close()
                time.sleep(0.01)
            raise AssertionError("sshd did not end")

    def said(self) -> str:
        """The last of its log, and whether it runs."""
        log = (self.directory / "sshd.log").read_text(errors="replace")[-1500:]
        status = self.process.poll() if self.process is not None else "not started"
        return f"{log} (exit status: {status})"

    def check(self) -> None:
        """Assert that it has refused and asked nobody. How many came in is the rig's own doing:
        there is no link here, each command is a connection (`SshRemote`)."""
        check([(self.log, Budget(accepted=None))])

    def ssh(self) -> list[str]:
        options = {
            "Port": str(self.port),
            "IdentityFile": f'"{self.directory}/client key"',
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.directory / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "5",
        }
        return ["ssh", "-F", "none", *(f"-o{key}={value}" for key, value in options.items())]


def descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        children = [int(word) for word in tasks.read_text().split()]
    except OSError:
        return []
    return [*(found for child in children for found in descendants(child)), *children]


class SshRemote:
    """The smallest Remote: a new connection for each command. HOME is one of the test's."""

    def __init__(self, sshd: Sshd, home: Path) -> None:
        self._sshd = sshd
        self._home = home
        self.commands = 0

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Completed:
        self.commands += 1
        words = ["env", f"HOME={self._home}", *argv]
        process = await asyncio.create_subprocess_exec(
            *self._sshd.ssh(),
            "127.0.0.1",
            "--",
            remote_command(words),  # as the session's own link does, for any login shell
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate(stdin)
        except TimeoutError as error:
            raise TimeoutExpired("no answer in time", transient=True) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        if process.returncode == 255:
            said = f"{err.decode()}; sshd: {self._sshd.said()}"
            raise ConnectionFailed(f"ssh: {said}", transient=True)
        return Completed(process.returncode, out, err)

    def remote_shell(self) -> list[str]:
        return [*self._sshd.ssh(), "-o", "SetEnv=TK_A='b \"c'"]

    def destination(self) -> str:
        return "127.0.0.1"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    directory = tmp_path / "sshd"
    directory.mkdir(mode=0o700)
    server = Sshd(directory)
    server.start()
    yield server
    server.stop()
    server.check()
