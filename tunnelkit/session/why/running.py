"""Samples of a running job: the probe runs on all its nodes side by side, each with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from tunnelkit import probe_zip
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.evidence.window import NodeWindow, parse_window
from tunnelkit.errors import SchedulerError, TunnelkitError
from tunnelkit.link.base import Link
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.session.agent.find_python import running

MOST_S = 60
#: To start a step, to find a Python, and to ask a driver that does not answer.
_MARGIN_S = 20.0
_MOST_NODES = 16
_AT_ONCE = 8
#: The probe's zip comes by stdin and stays in memory: nothing is written on the node.
BOOT = """
import os, sys
try:
    fd = os.memfd_create("tk-probe")
except (AttributeError, OSError):
    import tempfile
    file = tempfile.TemporaryFile()
    fd = file.fileno()
data = sys.stdin.buffer.read()
while data:
    data = data[os.write(fd, data):]
sys.path.insert(0, "/proc/self/fd/%d" % fd)
from tunnelkit.probe.main import main
sys.exit(main(sys.argv[1:]))
"""


class Enter(Protocol):
    """Runs a command in a job on a node, with its stdin, to its end."""

    async def __call__(
        self, job_id: str, node: str, argv: Sequence[str], *, stdin: bytes, timeout_s: float
    ) -> bytes:
        """Return its stdout. Raises TunnelkitError; TimeoutError after `timeout_s`."""
        ...


def by_scheduler(scheduler: Scheduler, link: Link) -> Enter | None:
    """Return the way into a job by a step of it (`srun --overlap`); None if there is none."""
    if not scheduler.capabilities.enters_jobs:
        return None

    async def enter(
        job_id: str, node: str, argv: Sequence[str], *, stdin: bytes, timeout_s: float
    ) -> bytes:
        step = scheduler.enter(job_id, node, argv)
        if step is None:
            raise no_way_in(node)
        done = await link.run(step, stdin=stdin, timeout_s=timeout_s)
        if done.exit_code != 0:
            raise _refused(node, done)
        return done.stdout

    return enter


async def sample(
    enter: Enter | None,
    job: JobView,
    seconds: int,
    python: str,
    programs: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> tuple[tuple[NodeWindow, ...], tuple[str, ...]]:
    """Return the windows of the job's nodes, and why others are missing.

    python: `[cluster] python`. programs: pids of tk's loops that run a program, by node."""
    if enter is None:
        return (), ("processes: the scheduler starts nothing in a job from outside",)
    nodes = job.nodes[:_MOST_NODES]
    if not nodes:
        return (), ("processes: the scheduler names no node of the job",)
    slots = asyncio.Semaphore(_AT_ONCE)
    words = [BOOT, "sample", "--seconds", str(seconds), "--job", job.step_id]
    data = probe_zip.build_sampler().data

    async def ask(node: str) -> NodeWindow | str:
        limit_s = seconds + _MARGIN_S
        known = ["--programs", ",".join(map(str, programs[node]))] if programs.get(node) else []
        argv = running(python, "-c", [*words, *known])
        async with slots:
            try:
                async with asyncio.timeout(limit_s):
                    out = await enter(job.step_id, node, argv, stdin=data, timeout_s=limit_s)
            except TimeoutError:
                return f"{node}: no answer within {limit_s:.0f} s"
            except TunnelkitError as error:
                return f"{node}: {error.one_line()}"
        return parse_window(out, node) or f"{node}: the probe's answer can't be read"

    found = await asyncio.gather(*(ask(node) for node in nodes))
    missing = [one for one in found if isinstance(one, str)]
    if len(job.nodes) > len(nodes):
        missing.append(f"{len(job.nodes) - len(nodes)} more nodes: only {len(nodes)} are sampled")
    return tuple(one for one in found if isinstance(one, NodeWindow)), tuple(missing)


def no_way_in(node: str) -> SchedulerError:
    """Return the error of a job that nothing can be started in from outside."""
    return SchedulerError(
        f"the scheduler starts nothing in the job on {node} from outside",
        hint="ask about a job that `tk up` has made: its agents answer",
    )


def _refused(node: str, done: Completed) -> SchedulerError:
    lines = done.error_text.splitlines() or done.text.strip().splitlines()
    return SchedulerError(
        f"nothing can be run in the job on {node}",
        cause=lines[-1][:300] if lines else f"exit status {done.exit_code}",
        hint="`tk up --attach-job JOB` and `tk run` show whether steps of the job start",
    )
