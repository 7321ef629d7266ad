"""An own cgroup below the one of tk, where that may be made: root, or a delegated one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tunnelkit.simulate.runners.base import AGAIN_S, TRIES, Child, LocalJob, MemoryUse, send, start
from tunnelkit.simulate.runners.cpus import pinned
from tunnelkit.simulate.runners.memory_group import ROOT, MemoryGroup, group_of, read

_PERIOD_US = 100_000
#: The process joins before it becomes the program. $1 cgroup.procs.
_JOIN = 'echo $$ >"$1" || exit 126; shift; exec "$@"'


class CgroupRun:
    """A run in a cgroup of its own. See `Started`."""

    def __init__(self, child: Child, group: MemoryGroup) -> None:
        self.child = child
        self._group = group

    def memory(self) -> MemoryUse:
        """See `Started.memory`."""
        return self._group.use()

    async def signal(self, number: signal.Signals) -> None:
        """See `Started.signal`."""
        for pid in self._group.pids():
            send(pid, number)

    def pids(self) -> list[int]:
        """See `Started.pids`."""
        return self._group.pids()

    async def finish(self) -> MemoryUse:
        """See `Started.finish`."""
        return self._group.use()

    async def end(self) -> None:
        """Kill all that is left, and remove the cgroup."""
        for _ in range(TRIES):
            if not self._group.pids():
                break
            await self.signal(signal.SIGKILL)
            await asyncio.sleep(AGAIN_S)
        if not self.child.ended:
            await self.child.wait()


class CgroupRunner:
    """See `Runner`."""

    name = "cgroup"
    source = "the run's cgroup"
    watches = False

    async def problem(self, job: LocalJob) -> str:
        """See `Runner.problem`: a cgroup is made, and removed again."""
        parent = _parent()
        if parent is None:
            return "no memory cgroup of this user's can be divided"
        trial = parent / f"{job.name}-trial"
        try:
            _make(trial, job)
        except OSError as error:
            return f"{parent}: {error.strerror}"
        finally:
            with suppress(OSError):
                trial.rmdir()
        return ""

    @asynccontextmanager
    async def started(self, job: LocalJob) -> AsyncIterator[CgroupRun]:
        """See `Runner.started`."""
        parent = _parent()
        assert parent is not None, "problem() has found one"
        place = parent / job.name
        try:
            group = _make(place, job)
            join = ["sh", "-c", _JOIN, "sh", str(place / "cgroup.procs")]
            run = CgroupRun(await start([*join, *pinned(job)], job), group)
            try:
                yield run
            finally:
                run.child.close()
                await asyncio.shield(run.end())
        finally:
            await asyncio.shield(_remove(place))


async def _remove(place: Path) -> None:
    """Remove the cgroup: the kernel may need a moment after the last process."""
    for _ in range(TRIES):
        try:
            place.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            await asyncio.sleep(AGAIN_S)
        else:
            return


def _parents() -> Iterator[Path]:
    """Yield the places in which a cgroup might be made, the innermost first."""
    own = group_of()
    if own is None:
        # Its own path is not there in a container's view, but the top is.
        yield ROOT / "memory"
        return
    top = ROOT if own.is_v2 else ROOT / "memory"
    place = own.path
    while place.is_relative_to(top):
        yield place
        place = place.parent


def _parent() -> Path | None:
    for place in _parents():
        if not os.access(place, os.W_OK):
            continue
        is_v2 = (place / "cgroup.controllers").exists()
        # v2: only where the controller is on for what is below; tk switches nothing on.
        if is_v2 and "memory" not in read(place / "cgroup.subtree_control").split():
            continue
        if is_v2 or (place / "memory.limit_in_bytes").exists():
            return place
    return None


def _make(place: Path, job: LocalJob) -> MemoryGroup:
    """Make a cgroup with the job's limits. Raises OSError."""
    place.mkdir()
    is_v2 = (place / "cgroup.controllers").exists()
    memory, cpus = job.limits.mem_bytes, job.limits.cpus
    if is_v2:
        if memory is not None:
            (place / "memory.max").write_text(str(memory))
            _try(place / "memory.swap.max", "0")
        if cpus is not None:
            _try(place / "cpu.max", f"{cpus * _PERIOD_US} {_PERIOD_US}")
    elif memory is not None:
        (place / "memory.limit_in_bytes").write_text(str(memory))
        # Memory and swap together: no swap on top of it.
        _try(place / "memory.memsw.limit_in_bytes", str(memory))
    return MemoryGroup(place)


def _try(path: Path, text: str) -> None:
    """Write what not every kernel has."""
    with suppress(OSError):
        path.write_text(text)
