"""`sample`: watch a job's processes on this node for some seconds; print one JSON object.

probe sample [--seconds N] [--job ID] [--programs PID,PID]

--programs: of the processes of tk's loop those that run a user's program, as its session knows.
"""

import gc
import json
import os
import sys
import time
from typing import Dict, Iterable, List, Optional

from tunnelkit.probe import cpu_quota, debugger, memory_pressure, places, proc, threads
from tunnelkit.probe.counters import CHILDREN, OWN, Counters, Shares, difference, used
from tunnelkit.probe.gpu import watch as gpus
from tunnelkit.probe.job_processes import JobProcess, JobProcesses
from tunnelkit.probe.places import PlaceWatch
from tunnelkit.probe.threads import Sampled

VERSION = 1
_MOST_PROCESSES = 256
_LEAST_S, _MOST_S = 1.0, 120.0
#: A process that used less of a core stands; its debugger is looked for.
_STANDS = 0.05
_IO = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes")


def main(words: List[str]) -> int:
    """Print the sample; 2 for words that are not known."""
    seconds, job = 10.0, ""
    known: List[int] = []
    pairs = list(zip(words[::2], words[1::2]))
    for name, value in pairs:
        if name == "--seconds" and value.replace(".", "", 1).isdigit():
            seconds = min(max(float(value), _LEAST_S), _MOST_S)
        elif name == "--job":
            job = value
        elif name == "--programs" and value.replace(",", "").isdigit():
            known = [int(word) for word in value.split(",") if word]
        else:
            pairs = []
    if 2 * len(pairs) != len(words):
        print("probe sample [--seconds N] [--job ID] [--programs PID,PID]", file=sys.stderr)
        return 2
    # It ends soon: collecting garbage costs more than keeping it.
    gc.disable()
    print(json.dumps(Window(seconds, job, known).take(), separators=(",", ":")), flush=True)
    return 0


class Window:
    """The job for some seconds."""

    def __init__(self, seconds: float, job_id: str, known: Iterable[int] = ()) -> None:
        self._wanted_s = seconds
        self._known = known
        self._job = JobProcesses(job_id)

    def take(self) -> Dict[str, object]:
        """Watch, and return what was seen."""
        spent_s = time.process_time()
        gpu = gpus.start(self._wanted_s)
        found = self._job.look()
        begun = time.monotonic()
        before = Counters(found, lazily=True)
        watch = PlaceWatch(found)
        # The first moment shows which threads are worth sampling.
        first = min(0.5, self._wanted_s / 4)
        time.sleep(first)
        busy = before.begin(first=True)
        time.sleep(first / 4)
        chosen = threads.busiest(found, before.threads, threads.run_and_wait(busy))
        sampled = [Sampled(key) for key in chosen]
        end_s = begun + self._wanted_s
        rounds = threads.sample_until(sampled, end_s, before.begin)
        now = self._job.look()
        seconds = time.monotonic() - begun
        after = Counters(now, before)
        after = after.of_programs(before, seconds, self._known)
        result = window(before, after, seconds, watch)
        result.update(thread_rows(sampled, before, after, seconds, rounds))
        for one in sampled:
            one.close()
        result["places"] = watch.result(seconds)
        answer = gpu.answer(max(0.0, end_s - time.monotonic()) + gpus.LIMIT_S)
        result["gpu"] = (
            answer
            if isinstance(answer, dict)
            else gpus.none_seen(f"the GPU driver gave no answer within {gpus.LIMIT_S:.0f} s")
        )
        result["own_cpu_s"] = round(time.process_time() - spent_s, 3)
        return result


def window(
    before: Counters,
    after: Counters,
    seconds: float,
    watch: Optional[PlaceWatch],
) -> Dict[str, object]:
    """Return what happened between two moments. watch: None: file systems are left out."""
    shares = after.shares(before, seconds)
    debuggers = debugger.Debuggers()
    processes = [
        {
            **_process(one, before, after, shares, seconds, debuggers),
            "mounts": watch.of(one.pid) if watch else [],
        }
        for one in list(after.processes.values())
    ]
    processes.sort(key=lambda row: -(float(str(row["run"])) + float(str(row["wait"]))))
    return {
        "version": VERSION,
        "node": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
        "seconds": round(seconds, 3),
        "process_count": len(processes),
        "ended": len(set(before.processes) - after.seen),
        "processes": processes[:_MOST_PROCESSES],
        "cpu_busy": _busy(before.cpus, after.cpus),
        "stolen": _stolen(before.cpus, after.cpus, seconds),
        "quotas": cpu_quota.differences(before.quotas, after.quotas),
        "frozen": after.frozen,
        "memory": memory_pressure.differences(before.memory, after.memory, seconds),
        "host_pids": proc.link_of("/proc/self/ns/pid") == "pid:[4026531836]",
    }


def thread_rows(
    sampled: List[Sampled],
    before: Counters,
    after: Counters,
    seconds: float,
    rounds: int,
) -> Dict[str, object]:
    """Return the threads whose states were sampled."""
    shares = after.shares(before, seconds)
    rows = []
    for one in sampled:
        if one.key[0] not in after.processes:
            continue
        pid, tid = one.key
        run, wait = shares.get(pid, {}).get(tid, (0.0, 0.0))
        rows.append(
            {
                "pid": pid,
                "tid": tid,
                "name": one.name,
                "run": round(run, 4),
                "wait": round(wait, 4),
                "states": one.states,
                "waits": one.waits,
                "wchans": one.wchans,
            }
        )
    count = sum(after.threads_of(pid) for pid in after.processes)
    return {"rounds": rounds, "thread_count": count, "threads": rows}


def _process(
    one: JobProcess,
    before: Counters,
    after: Counters,
    shares: Shares,
    seconds: float,
    debuggers: debugger.Debuggers,
) -> Dict[str, object]:
    pid = one.pid
    own = shares.get(pid, {}).values()
    status, stat = after.status[pid], after.stat[pid]
    was = before.stat.get(pid, [])
    io, io_was = after.io[pid], before.io.get(pid, {})
    # Threads that ended are in the process's own count alone.
    run = max(sum(run for run, _ in own), used(after, before, pid, OWN, seconds))
    return {
        "pid": pid,
        "parent": one.parent,
        "rank": one.rank,
        "name": proc.field_of(status, "Name")[:32],
        "argv": one.argv,
        "env": one.env,
        "threads": after.threads_of(pid),
        "run": round(run, 4),
        "wait": round(sum(wait for _, wait in own), 4),
        "wanting": sum(run + wait > 0.5 for run, wait in own),
        "children": round(used(after, before, pid, CHILDREN, seconds), 4),
        "major_faults": round(difference(stat, was, 9) / seconds, 2),
        "swap_bytes": _kib(status, "VmSwap"),
        "swap_bytes_before": _kib(before.status.get(pid, ""), "VmSwap"),
        "rss_bytes": _kib(status, "VmRSS"),
        "cpus_allowed": proc.field_of(status, "Cpus_allowed_list")[:400],
        "debugger": debuggers.of(pid, one.argv, after.threads_of(pid)) if run <= _STANDS else "",
        "lacks_client": run <= _STANDS and debugger.lacks_client(pid, one.argv),
        "stdin": places.kind_of_stdin(pid) if run <= _STANDS else "",
        "traced": proc.field_of(status, "TracerPid") not in ("", "0"),
        "nspid": [int(word) for word in proc.field_of(status, "NSpid").split() if word.isdigit()],
        "io": {name: round((io[name] - io_was.get(name, 0)) / seconds, 1) for name in _IO}
        if all(name in io for name in _IO)
        else None,
        "is_new": pid not in before.processes,
    }


def _kib(status: str, name: str) -> int:
    return proc.number_of(proc.field_of(status, name)) * 1024


def _busy(before: Dict[int, List[int]], after: Dict[int, List[int]]) -> Dict[str, float]:
    """Return the share of the time that each CPU was busy."""
    found = {}
    for cpu, now in after.items():
        spent = [new - old for new, old in zip(now, before.get(cpu, now))]
        if sum(spent) > 0:
            found[str(cpu)] = round(1 - (spent[3] + spent[4]) / sum(spent), 3)
    return found


def _stolen(before: Dict[int, List[int]], after: Dict[int, List[int]], seconds: float) -> float:
    """Return how many CPUs the hypervisor gave to others."""
    ticks = sum(now[7] - before[cpu][7] for cpu, now in after.items() if cpu in before)
    return round(max(0, ticks) / proc.TICKS_A_SECOND / seconds, 3)
