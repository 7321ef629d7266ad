"""A third backend, made here alone: no ssh, no login host, no shared home.

Its node is a directory with a HOME of its own, its byte streams are local processes, its allocation
is a local process group that holds the agent. The package knows nothing of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.support.ports import free_port
from tests.support.processes import in_group, until
from tunnelkit.child_process import run_child
from tunnelkit.config.load import load
from tunnelkit.config.schema import LinkName, SchedulerName, Settings
from tunnelkit.errors import (
    AllocationError,
    ConnectionFailed,
    NoSessionError,
    SchedulerError,
    TunnelkitError,
    UsageError,
)
from tunnelkit.link.base import ByteStream, Link, LinkKind, LinkSetup
from tunnelkit.model import Completed, JobState, JobStatus, LocalForward, ResourceRequest
from tunnelkit.scheduler.base import Capabilities, Command, PendingCause, Scheduler, Where
from tunnelkit.session.agent.client import AgentGone
from tunnelkit.session.agent.install import Installed
from tunnelkit.session.agent.local_process import open_local_stream
from tunnelkit.session.agent.routes import LinkRoute, Route
from tunnelkit.session.backends.backend import AgentAddress, Backend
from tunnelkit.session.backends.registry import BACKENDS, choose
from tunnelkit.session.doctor.check import Check, CheckStatus, Finding, ok
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.doctor.runner import run_checks
from tunnelkit.session.host import SessionHost
from tunnelkit.session.runtime.launch_spec import LaunchSpec
from tunnelkit.session.runtime.paths import session_paths
from tunnelkit.session.runtime.state import SessionState
from tunnelkit.session.session import Session

PATIENCE_S = 60.0
NODE = "cell"
# $1 the cell's directory; stdin: the job's script. The holder's group is the allocation.
SUBMIT = r"""
cd "$1" && rm -f pid && cat >script
HOME=$1 setsid sh -c 'echo $$ >pid; sh script; echo $? >code' </dev/null >log 2>&1 &
until [ -s pid ]; do sleep 0.01; done
cat pid
"""
# A killed process is no job any more, also while a busy init has not taken its status yet.
QUERY = r"""
cd "$1" || exit
[ ! -s pid ] || { ps -eo pgid=,stat= | grep -q "^ *$(cat pid)  *[^Z ]" && echo runs || echo over; }
"""
CANCEL = r"""cd "$1" && kill -TERM "-$2" """


class CellLink:
    """A link without a login host: it reaches one node, and nothing without a node's name."""

    def __init__(self, cell: Path) -> None:
        self._cell = cell
        self._closed = asyncio.Event()
        self.asked: list[str | None] = []

    @property
    def name(self) -> str:
        return "the cells"

    def _inside(self, argv: Sequence[str], node: str | None) -> list[str]:
        self.asked.append(node)
        if node != NODE or not (self._cell / "pid").exists():
            raise ConnectionFailed(f"there is no cell {node}")
        return ["env", f"HOME={self._cell}", *argv]

    async def open(self) -> None:
        pass

    async def open_node(self, node: str) -> None:
        pass

    async def is_alive(self) -> bool:
        return True

    async def doubt(self) -> None:
        """The cell is this machine."""

    async def wait_lost(self) -> str:
        await self._closed.wait()
        return "closed"

    async def run(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes = b"",
        timeout_s: float = 30.0,
    ) -> Completed:
        return await run_child(self._inside(argv, node), stdin=stdin, timeout_s=timeout_s)

    async def open_stream(self, argv: Sequence[str], *, node: str | None = None) -> ByteStream:
        return await open_local_stream(self._inside(argv, node))

    async def forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        raise UsageError("there are no forwards")

    async def cancel_forward(self, forward: LocalForward, *, node: str | None = None) -> None:
        pass

    def forward_route(self, forward: LocalForward, *, node: str | None = None) -> str | None:
        return None

    def failed_forwards(self) -> dict[tuple[LocalForward, str | None], TunnelkitError]:
        return {}

    def remote_shell(self, *, node: str | None = None) -> list[str]:
        raise UsageError("there is no ssh in a cell")

    def destination(self, node: str | None = None) -> str:
        return node or self.name

    async def close(self) -> None:
        self._closed.set()


class CellScheduler:
    """A scheduler whose commands run on the laptop."""

    name = "cells"
    capabilities = Capabilities()

    def __init__(self, cell: Path) -> None:
        self._cell = str(cell)

    def _here(self, script: str, *words: str, stdin: bytes = b"") -> Command:
        return Command(("sh", "-c", script, "sh", self._cell, *words), stdin, Where.LAPTOP)

    def inspector(self) -> None:
        return None

    def batch_scripts(self) -> None:
        return None

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        return self._here(SUBMIT, stdin=body.encode())

    def parse_submit(self, done: Completed) -> str:
        if done.exit_code:
            raise SchedulerError("no cell", cause=done.error_text)
        return done.text.strip()

    def amended(self, command: Command, done: Completed) -> Command | None:
        return None

    def query(self, job_ids: Sequence[str]) -> Command:
        return self._here(QUERY)

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        state = JobState.RUNNING if done.text.strip() == "runs" else JobState.ENDED
        return {one: JobStatus(one, state, state.value, nodes=(NODE,)) for one in job_ids}

    def verdict(self, status: JobStatus) -> PendingCause:
        return PendingCause.WAIT

    def find(self, job_name: str) -> Command:
        return self._here(QUERY + 'echo "$(cat pid 2>/dev/null)"')

    def parse_find(self, done: Completed, job_name: str) -> list[JobStatus]:
        said = done.text.split()
        if not said or said[0] != "runs":
            return []
        return [JobStatus(said[1], JobState.RUNNING, "runs", nodes=(NODE,))]

    def estimate(self, job_id: str) -> Command | None:
        return None

    def parse_estimate(self, done: Completed) -> str | None:
        return None

    def history(self, job_id: str) -> Command | None:
        return None

    def parse_history(self, done: Completed) -> JobState:
        return JobState.UNKNOWN

    def cancel(self, job_id: str) -> Command:
        return self._here(CANCEL, job_id)

    def parse_cancel(self, done: Completed) -> None:
        pass

    def enter(
        self, job_id: str, node: str, argv: Sequence[str], *, cpus: int | None = None
    ) -> list[str] | None:
        return None

    def step(self, job_id: str, node: str, argv: Sequence[str]) -> list[str]:
        raise UsageError("cells take no other commands")

    def canceller(self, job_id: str) -> Command | None:
        return None

    def parse_canceller(self, done: Completed) -> int | None:
        return None

    def list_names(self) -> Command | None:
        return None


def cells(cell: Path) -> Backend:
    """The record: all that the package needs to know."""

    async def detect(link: Link) -> str:
        return "cells"

    async def find_scheduler(link: Link, settings: Settings) -> Scheduler | None:
        return CellScheduler(cell)

    def routes(to: AgentAddress) -> list[Route]:
        return [LinkRoute(to.link, to.node, to.installed.argv("attach", to.name), name="cell")]

    def serve_words(
        scheduler: Scheduler, settings: Settings, name: str, installed: Installed | None
    ) -> list[str]:
        return ["serve", name]

    async def a_cell(scene: CheckContext) -> Finding:
        """Check the cell's directory."""
        return ok("there is room for a cell")

    def make(settings: Settings, setup: LinkSetup) -> Link:
        return CellLink(cell)

    return Backend(
        name="cells",
        links=(LinkKind("cell", make),),
        schedulers=("cells",),
        detect=detect,
        find_scheduler=find_scheduler,
        routes=routes,
        serve_words=serve_words,
        checks=lambda: (Check("cell", a_cell, "make room"),),
        has_login_host=False,
        shared_home=False,
        direct_route="cell",
        forwards=False,
    )


@pytest.fixture
async def session(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    base = Path(tempfile.mkdtemp(prefix="tk", dir="/tmp"))  # short: sockets lie below it
    cell, project = base / "cell", base / "project"
    cell.mkdir()
    project.mkdir()
    (project / "hello.txt").write_text("from the laptop\n")
    for name in ("STATE", "RUNTIME", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"TK_{name}_DIR", str(base / name.lower()))
    (project / "tunnelkit.toml").write_text(
        f'[cluster]\npython = "{sys.executable}"\n[mirror]\nremote = "~/work"\n'
        f"[debug]\nport = {free_port()}\n"
    )
    read = load(project, environ={})
    cluster = replace(
        read.cluster, link=cast(LinkName, "cell"), scheduler=cast(SchedulerName, "cells")
    )
    settings = replace(read, cluster=cluster)
    backend = choose(settings, (*BACKENDS, cells(cell)))
    paths = session_paths(project)
    paths.make()
    said: list[str] = []
    launch = LaunchSpec(settings, None)
    launch.save(paths.launch_wanted)
    made = Session(
        launch,
        paths,
        backend,
        SessionHost(prompter=_no_answer, say=said.append, changed=lambda: None),
    )
    try:
        yield made
    finally:
        await made.close("the test is over")
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int((cell / "pid").read_text()), signal.SIGKILL)
        for file in ("log", "script"):
            with contextlib.suppress(OSError):
                said.append((cell / file).read_text())
        shutil.rmtree(base)
        sys.stdout.write("\n".join(said))


async def _no_answer(text: str, echo: bool) -> str | None:
    return None


async def test_a_backend_that_the_package_does_not_know(session: Session) -> None:
    cell = Path(session.launch.settings.project_dir).parent / "cell"
    async with asyncio.timeout(PATIENCE_S):
        await session.up()
    assert session.states.state is SessionState.READY
    assert session.cluster.node == NODE and session.cluster.allocated.route == "cell"
    assert session.cluster.job is not None and session.cluster.job.submitted
    assert (cell / "work" / "hello.txt").read_text() == "from the laptop\n"
    done = await session.agent().call("exec.probe", argv=["test", "-f", f"{cell}/work/hello.txt"])
    assert done == 0
    assert None not in cast(CellLink, session.link).asked, "no login host was asked for anything"

    saved = session.launch.settings.project_dir / "later.txt"
    saved.write_text("saved\n")
    mirrors = session.files.mirrors
    assert mirrors is not None
    async with asyncio.timeout(PATIENCE_S):
        report = await mirrors.barrier(PATIENCE_S)
    assert report.by_node and (cell / "work" / "later.txt").read_text() == "saved\n"

    group = int((cell / "pid").read_text())
    async with asyncio.timeout(PATIENCE_S):
        await session.down()
    with contextlib.suppress(AssertionError):
        await asyncio.to_thread(until, lambda: not in_group(group), "ended", PATIENCE_S)
    assert in_group(group) == []
    assert session.all_ended


async def test_what_is_allocated_before_and_after_the_job(session: Session) -> None:
    before, setup = session.cluster.allocated, session.cluster.setup
    assert (before.node, before.job_id, before.route) == (None, None, None)
    with pytest.raises(AllocationError, match="not prepared the cells yet"):
        assert setup.installed
    with pytest.raises(AgentGone, match="no job"):
        await before.peer_stream(NODE, "agent")
    with pytest.raises(NoSessionError, match="not ready: new"):
        session.agent()
    async with asyncio.timeout(PATIENCE_S):
        await session.up()
    allocated, job = session.cluster.allocated, session.cluster.job
    assert job is not None and allocated is not before
    assert (allocated.node, allocated.job_id) == (NODE, job.job_id)
    allocated.ended = "job 1: it is gone"
    for stream in (allocated.open_stream(), allocated.peer_stream(NODE, "agent")):
        with pytest.raises(AgentGone) as caught:
            await stream
        assert caught.value.cause == "job 1: it is gone"
    async with asyncio.timeout(PATIENCE_S):
        await session.down()


async def test_its_doctor_has_its_own_checks(session: Session) -> None:
    settings = session.launch.settings
    backend = cells(Path("/nowhere"))
    scene = CheckContext(
        settings,
        session_paths(settings.project_dir),
        project_dir=settings.project_dir,
        make_link=backend.make_link,
    )
    (result,) = await run_checks(backend.checks(), scene)
    assert (result.name, result.status) == ("cell", CheckStatus.OK)
