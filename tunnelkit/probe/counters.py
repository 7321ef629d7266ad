"""All counters of a job at one moment, and what happened between two of them.

Most of a job's threads do not run, so a thread is read only where its process has used CPU time:
of others nothing can have changed but by less than a tick of the clock.
"""

import copy
import time
from typing import Dict, Iterable, List, Optional, Set, Tuple

from tunnelkit.probe import cpu_quota, memory_pressure, proc, threads
from tunnelkit.probe.job_processes import JobProcess, programs

Shares = Dict[int, Dict[int, Tuple[float, float]]]
_NS = 1e9
#: Positions in `proc.stat_fields`.
OWN, CHILDREN, _THREADS = (11, 12), (13, 14), 17
#: Processes that begin to run are looked for so often.
_LOOK_S = 1.5


class Counters:
    """processes: those of the job. previous: the counters before; of processes that have not run
    since, the threads are as there. lazily: no thread is read before `begin`."""

    def __init__(
        self,
        processes: Dict[int, JobProcess],
        previous: Optional["Counters"] = None,
        lazily: bool = False,
    ) -> None:
        self.processes = processes
        self.seen = set(processes)
        self.stat = {pid: stat_of(pid) for pid in processes}
        #: When the threads of a process were read first, in seconds from here; see `begin`.
        self.since: Dict[int, float] = {}
        self.threads: Dict[Tuple[int, int], Tuple[int, int]] = {}
        self._unread: Set[int] = set(processes) if lazily else set()
        self._made_s = self._looked_s = time.monotonic()
        if not lazily:
            self._read_threads(previous)
        #: At the beginning only the swap in use is wanted.
        self.status = {} if lazily and not _has_swap() else self._status()
        self.io = {
            pid: proc.counters_of(proc.text_of(f"/proc/{pid}/io", 1024).replace(":", ""))
            for pid in processes
        }
        groups = {one.cgroup for one in processes.values()}
        mounted = cpu_quota.hierarchies() if groups else []

        def of(controller: str) -> List[str]:
            found = [cpu_quota.levels(text, mounted, controller) for text in sorted(groups)[:16]]
            return list(dict.fromkeys(path for paths in found for path in paths))

        self.quotas = cpu_quota.quotas(of("cpu"))
        self.frozen = cpu_quota.is_frozen(of("freezer"))
        self.memory = memory_pressure.pressures(of("memory"))
        self.cpus = _cpu_times()

    def begin(self, first: bool = False) -> List[int]:
        """Read the threads of processes that run by now; return these. first: they may have run
        from the beginning, so their shares are of the time from now on."""
        if not first and time.monotonic() - self._looked_s < _LOOK_S:
            return []
        self._looked_s = time.monotonic()
        busy = [pid for pid in self._unread if ticks_of(stat_of(pid)) != ticks_of(self.stat[pid])]
        self._unread.difference_update(busy)
        self.threads.update(threads.run_and_wait(busy))
        if first:
            self.since.update(dict.fromkeys(busy, self._looked_s - self._made_s))
        return busy

    def of_programs(
        self, before: "Counters", seconds: float, known: Iterable[int] = ()
    ) -> "Counters":
        """Return the counters without processes of tk's loop that run no program.

        known: those that do run one."""
        run = {pid: used(self, before, pid, OWN, seconds) for pid in self.processes}
        pids = programs(self.processes, run, known)
        if len(pids) == len(self.processes):
            return self
        mine = copy.copy(self)
        mine.processes = {pid: one for pid, one in self.processes.items() if pid in pids}
        mine.threads = {key: one for key, one in self.threads.items() if key[0] in pids}
        return mine

    def shares(self, before: "Counters", seconds: float) -> Shares:
        """Return for each thread, by process, the CPUs that it used and those that it waited for.

        Threads that did not run are left out."""
        found: Shares = {}
        for key, (run, wait) in self.threads.items():
            pid, tid = key
            was = before.threads.get(key, (0, 0))
            if pid in before._unread or was == (run, wait):
                continue
            time_s = max(0.1, seconds - before.since.get(pid, 0.0)) * _NS
            share = (max(0, run - was[0]) / time_s, max(0, wait - was[1]) / time_s)
            found.setdefault(pid, {})[tid] = share
        return found

    def threads_of(self, pid: int) -> int:
        """Return how many threads a process has."""
        stat = self.stat[pid]
        return int(stat[_THREADS]) if len(stat) > _THREADS else 0

    def _read_threads(self, previous: Optional["Counters"]) -> None:
        if previous is None:
            self.threads = threads.run_and_wait(self.processes)
            return
        still = {
            pid
            for pid in self.processes
            if ticks_of(self.stat[pid]) == ticks_of(previous.stat.get(pid, []))
        }
        self.threads = {key: one for key, one in previous.threads.items() if key[0] in still}
        self.threads.update(threads.run_and_wait(pid for pid in self.processes if pid not in still))

    def _status(self) -> Dict[int, str]:
        return {pid: "\n" + proc.text_of(f"/proc/{pid}/status", 8192) for pid in self.processes}


def stat_of(pid: int) -> List[str]:
    """Return the fields of a process's stat."""
    return proc.stat_fields(proc.text_of(f"/proc/{pid}/stat", 2048))


def ticks_of(stat: List[str]) -> List[str]:
    """Return what it has used of CPU time."""
    return stat[OWN[0] : OWN[1] + 1]


def used(
    after: Counters, before: Counters, pid: int, fields: Tuple[int, int], seconds: float
) -> float:
    """Return the CPUs that a process (or its children) used, by the clock's ticks."""
    stat, was = after.stat[pid], before.stat.get(pid, [])
    ticks = sum(difference(stat, was, at) for at in fields)
    return ticks / proc.TICKS_A_SECOND / seconds


def difference(stat: List[str], was: List[str], at: int) -> int:
    """Return by how much a field has grown."""
    now = int(stat[at]) if len(stat) > at else 0
    return max(0, now - (int(was[at]) if len(was) > at else 0))


def _has_swap() -> bool:
    return len(proc.text_of("/proc/swaps", 4096).splitlines()) > 1


def _cpu_times() -> Dict[int, List[int]]:
    """Return each CPU's times by kind: user, nice, system, idle, iowait, irq, softirq, steal."""
    found = {}
    for line in proc.whole_text_of("/proc/stat", 1 << 20).splitlines():
        words = line.split()
        if words and words[0].startswith("cpu") and words[0][3:].isdigit() and len(words) > 8:
            found[int(words[0][3:])] = [int(word) for word in words[1:9]]
    return found
