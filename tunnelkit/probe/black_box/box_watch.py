"""Watches a job's processes, their ends, and kills for lack of memory."""

import os
import re
from typing import Dict, List, Mapping, Optional, Set, Tuple

from tunnelkit.probe import cgroup
from tunnelkit.probe.black_box.box_memory import MemoryCounts
from tunnelkit.probe.black_box.box_record import Line, Record, Row
from tunnelkit.probe.processes import JobProcesses, Key, Process
from tunnelkit.probe.wait_status import WaitStatuses

_TOP = 8
#: A killed process may take so many looks to go.
_LOOKS_FOR_VICTIM = 5
_KILL = 9
#: Without a wait status, a smaller one is no likely victim: the kernel takes the largest.
_LEAST_VICTIM = 16 << 20


class Watch:
    """Adds what it sees to a record. aside: pids whose CPU time is not the program's. `close`."""

    def __init__(self, environ: Mapping[str, str], record: Record, aside: Set[int]) -> None:
        self._record = record
        self._aside = set(aside)
        self._processes = JobProcesses(environ)
        self._statuses = WaitStatuses()
        self._memory = MemoryCounts(cgroup.job_number(environ))
        self._seen: Dict[Key, Process] = {}
        self._zombies: Set[Key] = set()
        self._now: Set[Key] = set()
        self._cpu_s = 0.0
        self._victims_due = 0
        self._looks_due = 0

    def leave_out(self, pid: int) -> None:
        """Do not count a process's CPU time as the program's."""
        self._aside.add(pid)

    def look(self, now_s: float) -> None:
        """See which processes are there and which have ended, and whether the kernel killed one."""
        found = self._processes.look()
        dead = {key for key, one in found.items() if one.state in "ZX" and one.threads <= 1}
        living = {key: self._sized(key, one) for key, one in found.items() if key not in dead}
        gone = [(key, one.wait_status) for key, one in found.items() if key in dead]
        gone = [each for each in gone if each[0] not in self._zombies]
        self._zombies = dead
        gone += [(key, None) for key in self._seen if key not in found]
        self._now = set(living)
        self._count_cpu(found)
        for key in living:
            self._statuses.watch(key)
        # After the processes: the kill of one that is missing is counted by now.
        memory = self._memory.look()
        if memory.killed:
            self._victims_due += memory.killed
            self._looks_due = _LOOKS_FOR_VICTIM
            self._record.events.append(
                {
                    "kind": "oom",
                    "time_s": now_s,
                    "killed": memory.killed,
                    "available_bytes": memory.available_bytes,
                }
            )
        self._end(gone, found, now_s)
        self._seen = living

    def sample(self, now_s: float, log_bytes: Optional[int]) -> None:
        """Keep a sample."""
        counted = [one for one in self._seen.values() if one.pid not in self._aside]
        line: Line = {
            "time_s": round(now_s, 1),
            "cpu_s": round(self._cpu_s, 2),
            "rss_bytes": sum(one.rss_bytes for one in counted),
            "used_bytes": self._memory.used_bytes,
            "available_bytes": self._memory.available_bytes,
            "processes": len(counted),
            "log_bytes": log_bytes,
            "top": self._top(counted),
        }
        self._record.samples.append(line)

    def minute(self) -> None:
        """Keep the newest sample as the minute's, without single processes."""
        if self._record.samples:
            newest = self._record.samples[-1]
            self._record.minutes.append({k: v for k, v in newest.items() if k != "top"})

    def count(self) -> None:
        """Put the counters into the record."""
        self._record.counters = self._memory.lines()

    def close(self) -> None:
        """Close what is open."""
        self._statuses.close()

    def _sized(self, key: Key, process: Process) -> Process:
        """Return a process with its memory: a killed one gives it back before it is gone."""
        before = self._seen.get(key)
        if process.rss_bytes or before is None:
            return process
        return process._replace(rss_bytes=before.rss_bytes)

    def _count_cpu(self, found: Mapping[Key, Process]) -> None:
        for key, one in found.items():
            if one.pid not in self._aside:
                before = self._seen.get(key)
                # What ran before the box began is none of its time.
                if before is not None:
                    self._cpu_s += max(0.0, one.cpu_s - before.cpu_s)
                elif self._seen and key not in self._zombies:
                    self._cpu_s += one.cpu_s

    def _end(
        self, gone: List[Tuple[Key, Optional[int]]], found: Mapping[Key, Process], now_s: float
    ) -> None:
        """Add the processes that have ended, with the kernel's victims among them."""
        ends = []
        for key, status in gone:
            process = self._seen.get(key) or found.get(key)
            kept = self._statuses.take(key)
            if process is not None:
                known = status if status is not None else kept
                ends.append((key, self._gone_line(process, known, now_s)))
        for line in self._victims([line for _, line in ends]):
            line["oom"] = "sure" if line["signal"] == _KILL else "likely"
        for key, line in ends:
            self._record.add_gone(line)
            self._processes.forget(key)
        if self._looks_due:
            self._looks_due -= 1
            if not self._looks_due:
                self._victims_due = 0

    def _victims(self, lines: List[Line]) -> List[Line]:
        """Return those that the kernel has killed for memory: the biggest that may be it."""
        least = max(_LEAST_VICTIM, self._largest() // 2)
        may = [
            one
            for one in lines
            if one["signal"] == _KILL or (_is_unknown(one) and _size(one) >= least)
        ]
        may.sort(key=lambda one: (one["signal"] == _KILL, _size(one)), reverse=True)
        chosen = may[: self._victims_due]
        self._victims_due -= len(chosen)
        return chosen

    def _largest(self) -> int:
        """Return the memory of the largest process that was there and has not ended."""
        return max(
            (one.rss_bytes for key, one in self._seen.items() if key in self._now), default=0
        )

    def _gone_line(self, process: Process, status: Optional[int], now_s: float) -> Line:
        about = self._processes.about.get((process.pid, process.start))
        code = signal = None
        if status is not None and os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
        elif status is not None and os.WIFSIGNALED(status):
            signal = os.WTERMSIG(status)
        return {
            "time_s": round(now_s, 1),
            "pid": process.pid,
            "parent": process.parent,
            "name": plain(process.name, 20),
            "command": "" if about is None else plain(about.command, 160),
            "rank": None if about is None else about.rank,
            "cpu_s": round(process.cpu_s, 2),
            "rss_bytes": process.rss_bytes,
            "code": code,
            "signal": signal,
        }

    def _top(self, processes: List[Process]) -> List[Row]:
        largest = sorted(processes, key=lambda one: one.rss_bytes, reverse=True)[:_TOP]
        rows: List[Row] = []
        for one in largest:
            about = self._processes.about.get((one.pid, one.start))
            rank = None if about is None else about.rank
            rows.append(
                [one.pid, plain(one.name, 20), rank, one.rss_bytes, round(one.cpu_s, 1), one.state]
            )
        return rows


def plain(text: str, most: int) -> str:
    """Return text that takes at most twice its length as JSON."""
    return re.sub("[^ -~]", "?", text)[:most]


def _is_unknown(line: Line) -> bool:
    return line["signal"] is None and line["code"] is None


def _size(line: Line) -> int:
    value = line["rss_bytes"]
    return value if isinstance(value, int) else 0
