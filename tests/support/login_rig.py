"""A login host of a test's own: one more real sshd in front of the shared lab, which can be
given any sshd_config, stopped, rebooted, and counts who authenticated, and how.

Its sessions are the lab's: same home, same Slurm, same nodes behind it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.logins import Budget, allowed, attempts, check, file_log
from tests.support.places import short_dir
from tests.support.ports import free_port
from tests.support.processes import Seen
from tests.support.tkrig import PROGRAM, Project, line_of, project_on
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.lab import LabInfo
from tunnelkit.lab.layout import Layout
from tunnelkit.lab.programs import find_program
from tunnelkit.lab.state import load

STOP = line_of(PROGRAM, "total += step")


class LoginHost:
    """An sshd that can be started again on its port. `address` is where it listens.

    options: lines of sshd_config that win over the lab's. At the end `check` holds it to what
    its test has stated: logins, how many at most; refusals, what it does not let in; visits, how
    often a person has acted, which is how often somebody was asked.
    """

    def __init__(
        self, lab: LabInfo, home: Path, *options: str, address: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.lab = lab
        self.home = home
        self.options = list(options)
        self.address = address
        self.port = port or free_port()
        self.logins = 1
        self.refusals = 0
        self.visits = 0
        #: Comes first on the PATH of its sessions, if set.
        self.programs: Path | None = None
        self.log = home / f"sshd-{address}.log"
        self._logins_log = file_log(f"{address}:{self.port}", self.log)
        self.host_key = Layout(lab.dir).ssh / "host_login"
        self._sshd: subprocess.Popen[bytes] | None = None
        self.write_client_config()

    # -- the daemon

    def start(self, program: str | None = None) -> None:
        """Start it, and wait until it greets. program: another name to run sshd under."""
        config = self.home / f"sshd_config-{self.address}"
        lab = (Layout(self.lab.dir).ssh / "sshd_login").read_text().splitlines()
        # Of most keywords the first counts, of MaxStartups the last, of others all.
        said = {"ListenAddress", "HostKey", *(one.split()[0] for one in self.options)}
        rest = [one for one in lab if one.split()[0] not in said]
        if self.programs is not None:
            rest = [one.replace('"PATH=', f'"PATH={self.programs}:') for one in rest]
        own = [f"ListenAddress {self.address}:{self.port}", f"HostKey {self.host_key}"]
        lines = [*own, "LogLevel VERBOSE", *self.options, *rest]
        config.write_text("\n".join(lines) + "\n")
        state = load(Layout(self.lab.dir))
        assert state is not None
        sshd = program or find_program("sshd")
        argv = [*state.on("login"), sshd, "-D", "-f", str(config), "-E", str(self.log)]
        self._sshd = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        processes.until(self._greets, f"sshd on port {self.port}")

    def stop(self) -> None:
        """End the listener and all that it serves, as a reboot does."""
        if self._sshd is not None:
            connections = self.connections()
            self._sshd.kill()
            self._sshd.wait()
            self._sshd = None
            processes.kill(connections)

    def connections(self) -> list[Seen]:
        """The sshds that serve connections, without what they have started for people."""
        assert self._sshd is not None
        return [
            one
            for one in processes.descendants([self._sshd.pid])
            if one.program.startswith(("sshd", "tkpam"))
        ]

    def served(self) -> list[Seen]:
        """All that runs there for who has logged in, their sshd included."""
        assert self._sshd is not None
        return processes.descendants([self._sshd.pid])

    def cut(self) -> None:
        """End all connections; the listener stays."""
        processes.kill(self.connections())

    def cut_authenticated(self) -> None:
        """End the connections of those who are in; who only stands at the door stays."""
        processes.kill(one for one in self.connections() if "@" in " ".join(one.argv))

    def _greets(self) -> bool:
        assert self._sshd is not None and self._sshd.poll() is None, self.said()
        try:
            with socket.create_connection((self.address, self.port), 1) as sock:
                return sock.recv(4) == b"SSH-"
        except OSError:
            return False

    # -- what it has seen

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def accepted(self) -> list[str]:
        """By what each authentication was done: `publickey`, `keyboard-interactive/pam`."""
        return [one.method for one in attempts(self.said()) if one.how == "Accepted"]

    def secrets(self) -> int:
        """How often somebody was to be asked, or a secret was sent, whatever became of it."""
        return sum(one.asked for one in attempts(self.said()))

    def check(self) -> None:
        """Assert that all its authentications were stated."""
        check([(self._logins_log, Budget(self.logins, self.refusals, self.visits))])

    def arrivals(self) -> int:
        """Connections that came in, the rig's own greetings not counted."""
        return len(re.findall(r"^Connection from ", self.said(), re.M))

    # -- the laptop's side

    def write_client_config(self, extra: str = "", host: str | None = None) -> Path:
        """An ssh_config in which `login` is this host; `extra` lines win within its block."""
        public = self.host_key.with_suffix(".pub").read_text()
        name = host or self.address
        known = self.home / "known_hosts"
        lab_known = (self.lab.ssh_config.parent / "ssh" / "known_hosts").read_text()
        known.write_text(f"[{name}]:{self.port} {public}\n{lab_known}")
        block = [extra] if extra else []
        block += [f"HostName {name}", f"Port {self.port}", f"UserKnownHostsFile {known}"]
        path = self.home / "ssh_config"
        text = "\n  ".join(["Host login", *block])
        path.write_text(f"{text}\n\n{self.lab.ssh_config.read_text()}")
        path.chmod(0o600)
        return path

    @property
    def client_config(self) -> Path:
        return self.home / "ssh_config"

    def configure(self, project: Project, extra: str = "") -> None:
        """Make a project use this login host; `extra` lines come below [cluster]."""
        project.configure(f'[cluster]\nssh_config = "{self.client_config}"\n{extra}\n')


@contextmanager
def login_home() -> Iterator[Path]:
    """A directory of a login host's own; short, for sockets."""
    home = short_dir("h")
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def login_host(
    lab: LabInfo,
    *options: str,
    started: bool = True,
    address: str = "127.0.0.1",
    port: int = 0,
    logins: int = 1,
) -> Iterator[LoginHost]:
    """A login host that is gone afterwards, and answers for who came; see `LoginHost`."""
    with login_home() as home:
        host = LoginHost(lab, home, *options, address=address, port=port)
        host.logins = logins
        try:
            if started:
                host.start()
            yield host
        finally:
            host.stop()
        host.check()


@asynccontextmanager
async def project_by(host: LoginHost, extra: str = "") -> AsyncIterator[Project]:
    """A project that reaches the lab through this login host; see `LoginHost.configure`."""
    async with project_on(host.lab) as project:
        host.configure(project, extra)
        yield project


@pytest.fixture
def login(slurm_lab: LabInfo, request: pytest.FixtureRequest) -> Iterator[LoginHost]:
    """A login host of the test's own with the lab's sshd_config; keys only."""
    with login_host(slurm_lab, logins=allowed(request, "login")) as host:
        yield host


@pytest.fixture
async def by_login(login: LoginHost) -> AsyncIterator[Project]:
    """A project through that login host."""
    async with project_by(login) as project:
        yield project


@asynccontextmanager
async def debugging(project: Project, *, up: bool = True) -> AsyncIterator[tuple[DapClient, int]]:
    """A debug session that stands at the first line of interest, and later steps on to the next."""
    if up:
        await project.up("node1", "--cpus", "2")
    await project.loop("python", "2.py")
    editor, thread, frame = await project.f5_to_stop(STOP)
    pid = await editor.evaluate("os.getpid()", frame)
    yield editor, thread
    await editor.request("next", threadId=thread)
    thread, frame = await editor.stopped()
    assert frame["line"] == STOP + 1
    assert await editor.evaluate("os.getpid()", frame) == pid


async def waits_for_a_person(project: Project) -> str:
    """Wait until the session has given up until somebody comes; its words."""
    while not (status := await project.status())["attention"]:
        await asyncio.sleep(0.1)
    assert status["state"] == "reconnecting"
    return str(status["attention"])
