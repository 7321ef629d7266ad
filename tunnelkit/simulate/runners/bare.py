"""Bare: nothing holds the run but tk, which looks at its memory and kills as the kernel would."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tunnelkit.simulate.runners.base import AGAIN_S, TRIES, Child, LocalJob, MemoryUse, send, start
from tunnelkit.simulate.runners.cpus import pinned
from tunnelkit.simulate.runners.process_tree import ProcessTree, memory_of


class BareRun:
    """A run as plain processes. See `Started`."""

    def __init__(self, child: Child, job: LocalJob) -> None:
        self.child = child
        self.tree = ProcessTree(child.pid)
        self._job = job

    def memory(self) -> MemoryUse:
        """See `Started.memory`."""
        used = sum(memory_of(self.tree.look(), self._job.limits.mem_bytes).values())
        return MemoryUse(used, used)

    async def signal(self, number: signal.Signals) -> None:
        """See `Started.signal`."""
        for pid in self.tree.look():
            send(pid, number)

    def pids(self) -> list[int]:
        """See `Started.pids`."""
        return self.tree.look()

    async def finish(self) -> MemoryUse:
        """See `Started.finish`."""
        return MemoryUse()

    async def end(self) -> None:
        """Kill all that is left, until nothing is, or what is left can't be killed."""
        for _ in range(TRIES):
            left = self.tree.all_of_session(self._job.name)
            if not left:
                break
            for pid in left:
                send(pid, signal.SIGKILL)
            if not self.child.ended:
                await self.child.wait()
            if left == [self.child.pid]:
                break
            await asyncio.sleep(AGAIN_S)


class BareRunner:
    """See `Runner`."""

    name = "bare"
    source = "resident memory, as tk looked at it"
    watches = True

    async def problem(self, job: LocalJob) -> str:
        """See `Runner.problem`: it works everywhere."""
        return ""

    @asynccontextmanager
    async def started(self, job: LocalJob) -> AsyncIterator[BareRun]:
        """See `Runner.started`."""
        run = BareRun(await start(pinned(job), job), job)
        try:
            yield run
        finally:
            run.child.close()
            await asyncio.shield(run.end())
