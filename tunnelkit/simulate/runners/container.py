"""Docker and podman: the image's programs under the job's limits, in the same directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tunnelkit.simulate.runners.base import Child, LocalJob, MemoryUse, ask, last_line, send, start
from tunnelkit.simulate.runners.memory_group import MemoryGroup, group_of

_ANSWER_S = 30.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ContainerRun:
    """A run in a container. See `Started`."""

    def __init__(self, child: Child, engine: str, name: str) -> None:
        self.child = child
        self._engine = engine
        self._name = name
        self._group: MemoryGroup | None = None

    async def find(self) -> None:
        """Look for its cgroup, which only an engine on this computer's own kernel has."""
        words = [self._engine, "inspect", "-f", "{{.State.Pid}}", self._name]
        done = await ask(words, _ANSWER_S)
        if done.code == 0 and done.text.isdigit() and int(done.text) > 1:
            self._group = group_of(int(done.text))

    def memory(self) -> MemoryUse:
        """See `Started.memory`."""
        return self._group.use() if self._group is not None else MemoryUse()

    async def signal(self, number: signal.Signals) -> None:
        """See `Started.signal`: its first process gets it, unless it is KILL, as all get."""
        await ask([self._engine, "kill", f"--signal={number.name}", self._name], _ANSWER_S)

    def pids(self) -> list[int]:
        """See `Started.pids`."""
        return self._group.pids() if self._group is not None else []

    async def finish(self) -> MemoryUse:
        """See `Started.finish`."""
        words = [self._engine, "inspect", "-f", "{{.State.OOMKilled}}", self._name]
        done = await ask(words, _ANSWER_S)
        if done.code != 0:
            return MemoryUse()
        return MemoryUse(kills=1 if done.text.strip() == "true" else None)


class ContainerRunner:
    """See `Runner`. name: the engine's command."""

    source = "the container's end, by its engine"
    watches = False

    def __init__(self, name: str) -> None:
        self.name = name

    async def problem(self, job: LocalJob) -> str:
        """See `Runner.problem`: the engine has to answer, and to have the image."""
        if shutil.which(self.name) is None:
            return f"{self.name} is not installed"
        if not job.image:
            return "no image is named (--image)"
        done = await ask([self.name, "image", "inspect", "-f", "{{.Id}}", job.image], _ANSWER_S)
        if done.code == 0:
            return ""
        words = last_line(done.text)
        if "connect" in words.lower() or done.code is None:
            return words or "its engine does not answer"
        return f"image {job.image} is not here: {self.name} pull {job.image}"

    @asynccontextmanager
    async def started(self, job: LocalJob) -> AsyncIterator[ContainerRun]:
        """See `Runner.started`."""
        # The engine needs its own environment; the job's goes by a file, which argv lists do not.
        child = await start(self._words(job), job, os.environ)
        run = ContainerRun(child, self.name, job.name)
        finding = asyncio.create_task(run.find())
        try:
            yield run
        finally:
            run.child.close()
            await asyncio.shield(self._end(run, job, finding))

    def _words(self, job: LocalJob) -> list[str]:
        limits = job.limits
        words = [self.name, "run", "--name", job.name, "--init", "--workdir", str(job.directory)]
        words += ["--volume", f"{job.directory}:{job.directory}"]
        words += ["--volume", f"{job.work}:{job.work}", "--env-file", str(_env_file(job))]
        if limits.mem_bytes is not None:
            words += ["--memory", str(limits.mem_bytes), "--memory-swap", str(limits.mem_bytes)]
        if limits.cpus is not None:
            words += ["--cpus", str(limits.cpus)]
        if self.name == "podman" and os.geteuid():
            words += ["--userns=keep-id"]
        elif self.name == "docker":
            words += ["--user", f"{os.getuid()}:{os.getgid()}"]
        return [*words, "--entrypoint", job.argv[0], job.image, *job.argv[1:]]

    async def _end(self, run: ContainerRun, job: LocalJob, finding: asyncio.Task[None]) -> None:
        finding.cancel()
        await asyncio.gather(finding, return_exceptions=True)
        # Its client first: else it could make the container after it was removed.
        if not run.child.ended:
            send(run.child.pid, signal.SIGKILL)
            await run.child.wait()
        await ask([self.name, "rm", "--force", "--volumes", job.name], _ANSWER_S)


def _env_file(job: LocalJob) -> str:
    """Write the job's variables; one with a line end can't be passed in this way."""
    path = job.work / "environ"
    own = ("SLURM", "PBS", "TK_", "CUDA_VISIBLE", "OMP_NUM_THREADS", "NCPUS", "PATH=")
    rows = [
        f"{name}={value}" if name != "PATH" else f"PATH={job.work}/bin:{_PATH}"
        for name, value in job.environ.items()
        if f"{name}=".startswith(own) and "\n" not in value
    ]
    path.write_text("\n".join(rows) + "\n")
    path.chmod(0o600)
    return str(path)
