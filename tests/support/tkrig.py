"""A project that uses the lab through the real `tk`: what the end-to-end tests stand on.

Everything of it lies in one short throw-away directory, and every process on the
laptop's side carries that directory in its environment, so that at the end it can be
shown that nothing is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from tests.lab_fixtures import lab_environ
from tests.support import processes, without_commands
from tests.support.hang import what_hangs
from tests.support.places import short_dir
from tests.support.ports import free_port
from tests.support.processes import Seen
from tests.support.terminal import PATIENCE_S, Done, Terminal
from tests.support.why_report import saw
from tunnelkit import lab as tk_lab
from tunnelkit.demo.dap_client import DapClient, Message
from tunnelkit.lab import LabInfo

TAG = "TK_TEST_PROJECT"
_TK = Path(sys.executable).parent / "tk"

PROGRAM = """\
import os
import sys

WORD = "first"
if __name__ == "__main__":
    total = 0
    for step in range(3):
        total += step
        print("step", step, WORD, flush=True)
    print("node", os.environ.get("SLURMD_NODENAME") or os.uname().nodename, flush=True)
"""


def line_of(source: str, text: str) -> int:
    """The 1-based line that holds `text`."""
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def _note_verdict(done: Done) -> None:
    """Keep the verdict for the table of scripts/why-cases."""
    with contextlib.suppress(ValueError, KeyError, IndexError):
        first = json.loads(done.out)["verdicts"][0]
        saw(first["code"], first["certainty"])


class Project:
    """A project directory with its own session, state and debug port, on a lab."""

    #: What cancels a job.
    canceller: ClassVar[str] = "scancel"
    #: What a program finds in the environment of a job with one GPU on node1.
    node_environ: ClassVar[dict[str, str]] = {
        "SLURMD_NODENAME": "node1",
        "CUDA_VISIBLE_DEVICES": "0",
    }

    def __init__(self, lab: LabInfo, base: Path) -> None:
        self.lab = lab
        self.base = base
        self.port = free_port()
        self.dir = base / f"proj-{secrets.token_hex(3)}"
        self.env = {
            **lab_environ(lab),
            TAG: str(base),
            "TK_STATE_DIR": str(base / "s"),
            "TK_RUNTIME_DIR": str(base),
            "XDG_CACHE_HOME": str(base / "c"),
            "PYTHONUNBUFFERED": "1",
        }
        self.env.pop("TK_PROFILE")
        self._terminals: list[Terminal] = []
        self._clients: list[DapClient] = []
        self._far_tags: set[str] = set()
        self.dir.mkdir()
        self.configure()
        self.write("2.py", PROGRAM)

    # -- files ------------------------------------------------------------

    def configure(self, extra: str = "") -> None:
        """Write tunnelkit.toml; `extra` comes after what every project here needs."""
        text = f'profile = "lab"\n[debug]\nport = {self.port}\n{extra}'
        (self.dir / "tunnelkit.toml").write_text(text)
        if not extra:
            return  # nothing that anybody has to agree to
        without_commands.agree(self.dir, self.env)

    def write(self, name: str, source: str) -> str:
        """Write a file of the project, in one step as editors do; return its local path."""
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}~")
        temporary.write_text(textwrap.dedent(source))
        temporary.replace(path)
        return str(path)

    def remote(self, name: str = "") -> Path:
        """Where a file of the project is on the cluster; the lab's disk is this machine's."""
        return self.lab.home / "tk" / self.dir.name / name

    @property
    def path_mappings(self) -> list[dict[str, str]]:
        return [{"localRoot": str(self.dir), "remoteRoot": str(self.remote())}]

    # -- tk ---------------------------------------------------------------

    async def tk(
        self, *args: str, code: int | None = 0, timeout_s: float = PATIENCE_S, stdin: bytes = b""
    ) -> Done:
        """Run a `tk` command to its end; `code` is what it must exit with (None: anything)."""
        process = await self._spawn(args, stderr=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            doing = await asyncio.to_thread(what_hangs, process.pid, self.lab.dir)
            process.kill()
            await process.wait()
            what = f"tk {' '.join(args)} took over {timeout_s} s\n{doing}"
            raise AssertionError(f"{what}\n{self.session_log()}") from None
        assert process.returncode is not None
        done = Done(args, process.returncode, out.decode(errors="replace"), err.decode())
        if args[:1] == ("why",) and "--json" in args:
            _note_verdict(done)
        assert code is None or done.code == code, f"{done}\n{self.session_log()}"
        return done

    async def terminal(self, *args: str) -> Terminal:
        """Start a `tk` command that goes on, such as `loop`."""
        process = await self._spawn(args, stderr=asyncio.subprocess.STDOUT)
        terminal = Terminal(process)
        self._terminals.append(terminal)
        return terminal

    async def piped(self, *args: str) -> asyncio.subprocess.Process:
        """Start a `tk` command that is written to and read from; who starts it ends it."""
        return await self._spawn(args, stderr=asyncio.subprocess.DEVNULL)

    async def _spawn(self, args: tuple[str, ...], *, stderr: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.lab.enter,
            str(_TK),
            *args,
            cwd=self.dir,
            env=self.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )

    async def up(self, *args: str) -> dict[str, Any]:
        """`tk up`; the session's status."""
        status: dict[str, Any] = (await self.tk("up", *args, "--json")).json
        self._far_tags.add(f"TK_PROCESS={status['agent']['pid']}.")
        return status

    async def all_loaded(self) -> None:
        """Wait until the session has imported all that it may need: it grows no more by that."""
        async with asyncio.timeout(PATIENCE_S):
            while "all modules that this session may need" not in self.session_log(1 << 20):
                await asyncio.sleep(0.2)

    async def status(self) -> dict[str, Any]:
        """What `tk status --json` prints; mostly asked without the command: tests poll it."""
        paths = without_commands.places(self.dir, self.env)
        if (known := await asyncio.to_thread(without_commands.status, paths)) is not None:
            return known
        status: dict[str, Any] = (await self.tk("status", "--json")).json
        return status

    async def loop(self, *command: str, armed: bool = True) -> Terminal:
        """`tk loop COMMAND`; with `armed`, once it says that F5 may come."""
        terminal = await self.terminal("loop", *command)
        if armed:
            await terminal.line(r"armed")
        return terminal

    async def ready(self) -> dict[str, Any]:
        """`tk ready --sync`, as an editor runs it before F5."""
        answer: dict[str, Any] = (await self.tk("ready", "--sync", "--json")).json
        return answer

    def session_log(self, most: int = 3000) -> str:
        """The end of the daemon's log: for messages of failed tests."""
        logs = sorted((self.base / "s").glob("*/session.log"))
        return "\n".join(path.read_text(errors="replace")[-most:] for path in logs)

    # -- editors ----------------------------------------------------------

    async def editor(self, port: int | None = None) -> DapClient:
        """An editor that has connected, and said nothing yet."""
        client = DapClient("an editor")
        self._clients.append(client)
        await client.connect(port or self.port)
        return client

    async def f5(self, *lines: int, file: str = "2.py", **attach: Any) -> DapClient:
        """An editor that has attached, with breakpoints on these lines."""
        client = await self.editor()
        await client.attach(
            {str(self.dir / file): list(lines)},
            path_mappings=self.path_mappings,
            timeout_s=PATIENCE_S,
            **attach,
        )
        return client

    async def f5_to_stop(self, *lines: int, file: str = "2.py") -> tuple[DapClient, int, Message]:
        """The whole F5: the editor, the stopped thread, and its top frame."""
        client = await self.f5(*lines, file=file)
        thread, frame = await client.stopped(PATIENCE_S)
        assert frame["source"]["path"] == str(self.dir / file)
        return client, thread, frame

    # -- looking behind the curtain ---------------------------------------

    def laptop_processes(self) -> list[Seen]:
        """Every process on the laptop's side that this project has started."""
        tag = f"{TAG}={self.base}"
        return [one for one in processes.look().values() if tag in one.environ]

    def ssh_processes(self) -> list[Seen]:
        """All ssh between laptop and node: clients, their ProxyCommands, and the sshds that
        serve connections. The lab is this test's alone while it runs, so they are ours."""
        clients = [one for one in self.laptop_processes() if one.program == "ssh"]
        return clients + self.sshd_connections()

    def sshd_connections(self) -> list[Seen]:
        listeners = [
            daemon.pid
            for daemon in tk_lab.status(self.lab.dir).daemons
            if daemon.name.startswith("sshd-")
        ]
        return [one for one in processes.descendants(listeners) if one.program.startswith("ssh")]

    def cluster_processes(self) -> list[Seen]:
        """The agent with its bridges, what it has started, and what those left behind."""
        name = f"tk-{self.dir.name}-"

        def ours(one: Seen) -> bool:
            tagged = any(word.startswith(tag) for word in one.environ for tag in self._far_tags)
            return tagged or any(name in word for word in one.argv)

        return [one for one in processes.look().values() if ours(one)]

    def on_login(self, *argv: str) -> list[str]:
        """The argv that runs this on the login host, without ssh."""
        return [*tk_lab.on("login", self.lab.dir), *argv]

    async def do_on_login(self, *argv: str, code: int | None = 0) -> str:
        """Run this on the login host, without ssh; its stdout."""
        done = await asyncio.to_thread(subprocess.run, self.on_login(*argv), capture_output=True)
        assert code is None or done.returncode == code, done.stderr
        return done.stdout.decode()

    async def jobs(self) -> list[str]:
        """`ID STATE` of the project's jobs that Slurm still has."""
        if self.lab.scheduler != "slurm":
            return []
        out = await self.do_on_login("squeue", "-h", "-t", "all", "-o", "%i %T %j")
        rows = [line.split(" ", 2) for line in out.splitlines()]
        over = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
        return [
            f"{job} {state}"
            for job, state, name in rows
            if name.startswith(f"tk-{self.dir.name}-") and state not in over
        ]

    # -- the end ----------------------------------------------------------

    async def left(self) -> list[str]:
        """Whatever is still there of this project: processes, job, sockets, listening port."""
        found = [f"laptop: {one}" for one in self.laptop_processes()]
        found += [f"cluster: {one}" for one in self.cluster_processes()]
        found += [f"job: {job}" for job in await self.jobs()]
        found += [f"socket: {path}" for path in self.base.rglob("*") if path.is_socket()]
        found += [f"socket: {path}" for path in self._agent_sockets()]
        if not self.lab.enter:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", self.port))
                except OSError:
                    found.append(f"port: {self.port}")
        return found

    def forget_killed_agents(self) -> None:
        """Remove the sockets of this project's agents that nobody listens at any more."""
        for path in self._agent_sockets():
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                    path.unlink()

    def _agent_sockets(self) -> list[Path]:
        return list(Path("/tmp", f"tunnelkit-{os.getuid()}").glob(f"tk-{self.dir.name}-*"))

    async def nothing_left(self, deadline_s: float = 20.0) -> None:
        """Assert that nothing of the project is left; Slurm needs a moment to forget a job."""
        ends = time.monotonic() + deadline_s
        while found := await self.left():
            assert time.monotonic() < ends, "\n".join(["left behind:", *found, self.session_log()])
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        """End all that a test has left, by whatever way it takes."""
        for client in self._clients:
            await client.drop()
        for terminal in self._terminals:
            await terminal.close()
        if await self.left():
            down = await self.tk("down", code=None)
            if down.code not in (0, 4):
                print(down, self.session_log())
        processes.kill(self.laptop_processes())
        for job in await self.jobs():
            await self.do_on_login(self.canceller, job.split()[0], code=None)


P = TypeVar("P", bound=Project)


@asynccontextmanager
async def project_on(lab: LabInfo) -> AsyncIterator[Project]:
    """A project on that lab that is gone afterwards, and has left nothing behind."""
    async with made_project(lambda base: Project(lab, base)) as project:
        yield project


@asynccontextmanager
async def made_project(make: Callable[[Path], P]) -> AsyncIterator[P]:
    """What `make` makes in a directory of its own; gone afterwards, with nothing left behind."""
    base = short_dir("p")
    project = make(base)
    try:
        try:
            yield project
        finally:
            await project.close()
        await project.nothing_left()
    finally:
        processes.kill(project.laptop_processes())
        processes.kill(project.cluster_processes())
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
async def project(slurm_lab: LabInfo) -> AsyncIterator[Project]:
    """A project on the shared loopback lab with Slurm."""
    async with project_on(slurm_lab) as made:
        yield made


async def eventually(condition: Callable[[], object], what: str, deadline_s: float = 30.0) -> None:
    """Poll a condition that has no event to wait for."""
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, f"not within {deadline_s:.0f} s: {what}"
        await asyncio.sleep(0.02)
