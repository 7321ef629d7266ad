"""One run: its output passed on, its memory looked at, its limits of time kept, its end noted."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tunnelkit.simulate.runners.base import LocalJob, MemoryUse, Runner, Started, send
from tunnelkit.simulate.runners.process_tree import memory_of

#: Between two looks at the memory. Slurm looks every 30 s, a kernel at each page.
LOOK_S = 0.1
#: From TERM to KILL at the time limit, as Slurm's KillWait; a run that is only to stop gets less.
KILL_WAIT_S, STOP_WAIT_S = 30.0, 5.0
TAIL_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run.

    code, signal: of its first process, one of them. seconds: how long it ran. memory: see
    `MemoryUse`; `used` is what was seen when it was killed. killed_by_tk: tk killed a process at
    the memory limit, when (after so many seconds). at_time_limit, stopped: tk ended it, at the
    job's limit or as the user wished. silent_s: without output before the end. cpu_s: CPU time of
    it, None if it is not known. tail: the end of its output.
    """

    code: int | None
    signal: int | None
    seconds: float
    memory: MemoryUse
    killed_s: float | None = None
    killed_by_tk: bool = False
    at_time_limit: bool = False
    stopped: bool = False
    silent_s: float = 0.0
    cpu_s: float | None = None
    tail: str = ""

    @property
    def exit_code(self) -> int:
        """The code as a shell has it; 0 for one that was stopped as the user wished."""
        if self.stopped:
            return 0
        return 128 + self.signal if self.signal is not None else self.code or 0


async def run_job(runner: Runner, job: LocalJob, show: Callable[[bytes], None]) -> RunEnd:
    """Run a job to its end. Raises MissingProgram; cancelled, it ends all of it first."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    async with runner.started(job) as started:
        run = _Run(runner, job, started, show)
        end = await run.end()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # A container's processes are the engine's children.
    return run.ended(end, None if runner.name in ("docker", "podman") else cpu_s)


class _Run:
    def __init__(
        self, runner: Runner, job: LocalJob, started: Started, show: Callable[[bytes], None]
    ) -> None:
        self._runner, self._job, self._started, self._show = runner, job, started, show
        self._memory = MemoryUse()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._begun_s = self._written_s = time.monotonic()
        self._killed_s: float | None = None
        self._killed_use: int | None = None
        self._by_tk = self._at_limit = self._stopped = False
        self._seconds = 0.0

    async def end(self) -> int:
        """Return the wait status' code, once the first process has ended."""
        waiting = asyncio.create_task(self._started.child.wait())
        reading = asyncio.create_task(self._read())
        watching = asyncio.create_task(self._watch_memory())
        timing = asyncio.create_task(self._watch_time())
        tasks = {waiting, reading, watching, timing}
        try:
            going = set(tasks)
            while not waiting.done():
                done, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                # A reader of the output that has gone, or a fault: the run must not go on unseen.
                for task in done:
                    task.result()
            code = waiting.result()
            self._seconds = time.monotonic() - self._begun_s
            self._memory.later(await self._started.finish())
            # What is left may hold the pipe open; a job's end is its script's end.
            await asyncio.wait({reading}, timeout=0.3)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return code

    def ended(self, code: int, cpu_s: float | None) -> RunEnd:
        """Return all that is known."""
        memory = self._memory
        if self._killed_use is not None:
            memory = MemoryUse(self._killed_use, memory.peak, memory.kills, memory.at_limit)
        # A container's engine, and the holder of a scope, tell of a signal by 128 and more.
        return RunEnd(
            code if code >= 0 else None,
            -code if code < 0 else None,
            self._seconds,
            memory,
            self._killed_s if self._killed_s is not None or not memory.kills else self._seconds,
            self._by_tk,
            self._at_limit,
            self._stopped,
            max(0.0, self._begun_s + self._seconds - self._written_s),
            cpu_s,
            b"".join(self._tail).decode("utf-8", "replace"),
        )

    async def _read(self) -> None:
        await self._started.child.read(self._take)

    def _take(self, data: bytes) -> None:
        self._written_s = time.monotonic()
        self._show(data)
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) > TAIL_BYTES:
            self._tail_size -= len(self._tail.popleft())

    async def _watch_memory(self) -> None:
        limit = self._job.limits.mem_bytes
        while True:
            before = self._memory.kills or 0
            new = self._started.memory()
            self._memory.later(new)
            if (self._memory.kills or 0) > before and self._killed_s is None:
                self._note_kill()
            if self._runner.watches and limit is not None and (new.used or 0) > limit:
                self._kill_largest(limit)
            await asyncio.sleep(LOOK_S)

    def _note_kill(self) -> None:
        self._killed_s = time.monotonic() - self._begun_s
        self._killed_use = self._job.limits.mem_bytes

    def _kill_largest(self, limit: int) -> None:
        """Kill the process that uses most, as the kernel does in a job's cgroup."""
        sizes = memory_of(self._started.pids(), limit)
        total = sum(sizes.values())
        if total <= limit:
            return
        self._memory.later(MemoryUse(total, total, (self._memory.kills or 0) + 1))
        if self._killed_s is None:
            self._killed_s = time.monotonic() - self._begun_s
            self._killed_use = total
        self._by_tk = True
        send(max(sizes, key=lambda pid: sizes[pid]), signal.SIGKILL)

    async def _watch_time(self) -> None:
        limits = self._job.limits
        ends = [one for one in (limits.time_s, limits.stop_s) if one is not None]
        if not ends:
            return
        await asyncio.sleep(min(ends))
        self._stopped = limits.stop_s is not None and min(ends) == limits.stop_s
        self._at_limit = not self._stopped
        await self._started.signal(signal.SIGTERM)
        await asyncio.sleep(STOP_WAIT_S if self._stopped else KILL_WAIT_S)
        await self._started.signal(signal.SIGKILL)
