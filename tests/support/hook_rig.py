"""A node as the hook of debugged jobs sees it: a dial-in port with its file, and an editor's
adapter for every process that dials in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tunnelkit
from tests.support import processes
from tunnelkit.agent.processes.peer_process import PeerProcess, identify
from tunnelkit.debug.adapter.adapter import Adapter, Adapters
from tunnelkit.debuggee.ranks import Rank, rank_of
from tunnelkit.demo.dap_client import DapClient
from tunnelkit.mux.tasks import cancel_all

PACKAGE = Path(tunnelkit.__file__).parent
#: The hook as it lies in the sources.
SITE = PACKAGE / "debuggee" / "site"
NODE = "n1"


def pack(zip_path: Path) -> Path:
    """The hook in a zip, as the agent brings it; the PYTHONPATH entry within."""
    # What the guard of a debuggee imports is in mux.
    rooms = [path for room in ("debuggee", "mux") for path in (PACKAGE / room).rglob("*.py")]
    with zipfile.ZipFile(zip_path, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [PACKAGE / "__init__.py", *sorted(rooms)]:
            archive.write(path, path.relative_to(PACKAGE.parent))
    return zip_path / "tunnelkit" / "debuggee" / "site"


@dataclass
class Target:
    """A process that dialled in, and the port where its editor connects."""

    identity: PeerProcess
    rank: Rank | None
    port: int

    async def editor(self, breakpoints: dict[str, list[int]]) -> DapClient:
        """An editor with its breakpoints set; the program begins to run."""
        client = DapClient()
        await client.connect(self.port)
        await client.attach(breakpoints)
        return client


@dataclass
class Ended:
    """How a job ended."""

    code: int
    output: str


@dataclass
class Job:
    """A command started in the node's environment."""

    process: asyncio.subprocess.Process
    _reading: asyncio.Task[bytes]

    async def ended(self, timeout_s: float = 60.0) -> Ended:
        async with asyncio.timeout(timeout_s):
            output = await asyncio.shield(self._reading)
            code = await self.process.wait()
        return Ended(code, output.decode())

    async def close(self) -> None:
        if self.process.returncode is None:
            processes.kill([*processes.descendants([self.process.pid]), self.process.pid])
            await self.process.wait()
        await cancel_all(self._reading)


@dataclass
class Node:
    """Use `node()`. targets: what has dialled in, in that order."""

    directory: Path
    site: Path = SITE
    targets: list[Target] = field(default_factory=list)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)
    _jobs: list[Job] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _adapters: list[Adapter] = field(default_factory=list)
    _makes: Adapters = field(default_factory=Adapters)

    @property
    def port_file(self) -> Path:
        return self.directory / "run" / f"loop.1.{NODE}.port"

    def also_known_as(self, *names: str) -> None:
        """Give more nodes a port file; all are this machine."""
        for name in names:
            path = self.port_file.with_name(f"loop.1.{name}.port")
            path.write_text(self.port_file.read_text())
            path.chmod(0o600)

    def environment(self, contract: dict[str, Any], **more: str) -> dict[str, str]:
        """What the agent gives a job, with these keys in TK_RANKS and variables besides."""
        given = {"dialin": str(self.directory / "run" / "loop.1"), "only": None, **contract}
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "PYTHONPATH": str(self.site),
            "PYTHONUNBUFFERED": "1",
            "SLURMD_NODENAME": NODE,
            "TK_RANKS": json.dumps(given),
            "OMP_NUM_THREADS": "1",
            **more,
        }

    async def run(self, *argv: str, contract: dict[str, Any] | None = None, **more: str) -> Job:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=self.directory,
            env=self.environment(contract or {}, **more),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        job = Job(process, asyncio.create_task(process.stdout.read()))
        self._jobs.append(job)
        return job

    async def target(self, rank: int, timeout_s: float = 60.0) -> Target:
        """The process of a rank, as soon as it has dialled in."""

        def found() -> Target | None:
            ranked = (one for one in self.targets if one.rank is not None)
            return next((one for one in ranked if one.rank[0] == rank), None)

        async with asyncio.timeout(timeout_s), self._came:
            await self._came.wait_for(found)
        target = found()
        assert target is not None
        return target

    async def serve(self, listener: socket.socket) -> None:
        while True:
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
            task = asyncio.create_task(self._welcome(sock))
            self._tasks.add(task)

    async def _welcome(self, sock: socket.socket) -> None:
        identity = identify(sock)
        adapter = await self._makes.start()
        self._adapters.append(adapter)
        debuggee = await asyncio.open_connection(sock=sock)
        server = await asyncio.open_connection("127.0.0.1", adapter.server_port)
        target = Target(identity, rank_of(identity.environ), adapter.client_port)
        async with self._came:
            self.targets.append(target)
            self._came.notify_all()
        await asyncio.gather(_pump(debuggee[0], server[1]), _pump(server[0], debuggee[1]))

    async def close(self) -> None:
        for job in self._jobs:
            await job.close()
        await cancel_all(*self._tasks)
        for adapter in self._adapters:
            adapter.close()
        await self._makes.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def node(directory: Path, site: Path = SITE) -> AsyncIterator[Node]:
    """A node that listens, with its port file in a directory of its own."""
    one = Node(directory, site)
    one.port_file.parent.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        one.port_file.write_text(f"{listener.getsockname()[1]}\n")
        one.port_file.chmod(0o600)
        serving = asyncio.create_task(one.serve(listener))
        try:
            yield one
        finally:
            await cancel_all(serving)
            await one.close()
