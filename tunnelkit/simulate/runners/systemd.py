"""A scope of the user's own systemd: the kernel holds the limits, systemd ends what is left."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tunnelkit.simulate.runners.base import (
    AGAIN_S,
    TRIES,
    Child,
    LocalJob,
    MemoryUse,
    ask,
    last_line,
    send,
    start,
)
from tunnelkit.simulate.runners.cpus import pinned
from tunnelkit.simulate.runners.memory_group import MemoryGroup, group_of, read, use_of

# The scope's counts go with its last process: so they are written down before. $1 the file.
_HOLD = r"""
out=$1
shift
"$@"
code=$?
group=$(sed -n 's/^0:://p' /proc/self/cgroup)
group=/sys/fs/cgroup$group
[ -r "$group/memory.events" ] ||
  group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
for name in memory.events memory.peak memory.oom_control memory.max_usage_in_bytes; do
  [ ! -r "$group/$name" ] || { echo "tk-file $name"; cat "$group/$name"; }
done >"$out"
exit $code
"""
#: Says the limit of the cgroup in which it runs.
_TRIAL = r"""
group=$(sed -n 's/^0:://p' /proc/self/cgroup)
cat "/sys/fs/cgroup$group/memory.max" 2>/dev/null
group=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
[ -z "$group" ] || cat "/sys/fs/cgroup/memory$group/memory.limit_in_bytes" 2>/dev/null
:
"""
_PROBE_BYTES = 64 << 20


class SystemdRun:
    """A run in a scope. See `Started`."""

    def __init__(self, child: Child, job: LocalJob, counts: Path) -> None:
        self.child = child
        self._own: MemoryGroup | None = None
        self._outer = group_of()
        self._counts = counts

    def _group(self) -> MemoryGroup | None:
        """Return the scope's cgroup, once the process is in it."""
        if self._own is None:
            found = group_of(self.child.pid)
            if found is not None and found != self._outer:
                self._own = found
        return self._own

    def memory(self) -> MemoryUse:
        """See `Started.memory`."""
        group = self._group()
        return group.use() if group is not None else MemoryUse()

    async def signal(self, number: signal.Signals) -> None:
        """See `Started.signal`. The holder stays, for the counts."""
        for pid in self.pids():
            if pid != self.child.pid or number is signal.SIGKILL:
                send(pid, number)

    def pids(self) -> list[int]:
        """See `Started.pids`."""
        group = self._group()
        return group.pids() if group is not None else []

    async def finish(self) -> MemoryUse:
        """See `Started.finish`."""
        files: dict[str, str] = {}
        for part in read(self._counts).split("tk-file ")[1:]:
            name, _, text = part.partition("\n")
            files[name] = text
        return use_of(files)


class SystemdRunner:
    """See `Runner`."""

    name = "systemd"
    source = "the scope's cgroup"
    watches = False

    async def problem(self, job: LocalJob) -> str:
        """See `Runner.problem`: a scope is made, and its limit read back."""
        if shutil.which("systemd-run") is None:
            return "systemd-run is not installed"
        name = f"{job.name}-trial"
        words = [*_words(name, _PROBE_BYTES, None), "sh", "-c", _TRIAL]
        done = await ask(words)
        if done.code != 0:
            return last_line(done.text) or "systemd-run failed"
        if str(_PROBE_BYTES) not in done.text.split():
            return "its scopes have no memory limit here: the controller is not delegated"
        return ""

    @asynccontextmanager
    async def started(self, job: LocalJob) -> AsyncIterator[SystemdRun]:
        """See `Runner.started`."""
        counts = job.work / "scope-counts"
        words = _words(job.name, job.limits.mem_bytes, job.limits.cpus)
        hold = ["sh", "-c", _HOLD, "sh", str(counts), *pinned(job)]
        run = SystemdRun(await start([*words, *hold], job), job, counts)
        try:
            yield run
        finally:
            run.child.close()
            await asyncio.shield(_end(run, job))


def _words(name: str, memory: int | None, cpus: int | None) -> list[str]:
    words = ["systemd-run", "--user", "--scope", "--quiet", "--collect", f"--unit={name}"]
    if memory is not None:
        words += ["-p", f"MemoryMax={memory}", "-p", "MemorySwapMax=0"]
    if cpus is not None:
        words += ["-p", f"CPUQuota={cpus * 100}%"]
    return [*words, "--"]


async def _end(run: SystemdRun, job: LocalJob) -> None:
    """Stop the scope with all that is in it."""
    if run.child.ended and not run.pids():
        return
    if shutil.which("systemctl") is not None:
        await ask(["systemctl", "--user", "kill", "--signal=KILL", f"{job.name}.scope"])
    # Where there is no such manager, or it does not answer.
    for _ in range(TRIES):
        pids = run.pids()
        if not pids:
            break
        for pid in pids:
            send(pid, signal.SIGKILL)
        await asyncio.sleep(AGAIN_S)
    if not run.child.ended:
        send(run.child.pid, signal.SIGKILL)
        await run.child.wait()
