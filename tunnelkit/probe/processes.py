"""The processes of a job on this node: by its cgroup, else by the job's id in their environment."""

import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from tunnelkit.probe import cgroup

#: Variables that hold a rank. Slurm's is set in each job's script, too: it counts in steps only.
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_STEP = "SLURM_STEP_ID"
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID")
_MOST_PROCESSES = 4096
#: A pid that was another's may have become the job's: all are looked at so often.
_FULL_LOOK = 10
_MOST_ENVIRON = 1 << 18
_TICKS = float(os.sysconf("SC_CLK_TCK"))
_PAGE = os.sysconf("SC_PAGE_SIZE")

#: pid and start time (in clock ticks since boot): a pid may be used again.
Key = Tuple[int, int]


class Process(NamedTuple):
    """One process. cpu_s: of all its threads. wait_status: of a zombie, else None."""

    pid: int
    start: int
    parent: int
    name: str
    state: str
    cpu_s: float
    rss_bytes: int
    threads: int
    wait_status: Optional[int]


class About(NamedTuple):
    """Figures that change by exec only, which `name` shows. rank: None if it is no rank."""

    name: str
    command: str
    rank: Optional[int]


class JobProcesses:
    """Finds a job's processes again and again. environ: of a process of the job."""

    def __init__(self, environ: Mapping[str, str], proc: str = "/proc") -> None:
        self._proc = proc
        self._group = cgroup.job_group(cgroup.job_number(environ), proc)
        self._marks = [f"{one}={environ[one]}".encode() for one in _JOBS if environ.get(one)]
        self._own = environ
        self._uid = os.getuid()
        #: False: a process that is not the job's.
        self._known: Dict[Key, bool] = {}
        #: Pids of others' processes, which are left out until the next full look.
        self._others: Set[int] = set()
        self._looks = 0
        self.about: Dict[Key, About] = {}

    def look(self) -> Dict[Key, Process]:
        """Return the processes that there are now."""
        found: Dict[Key, Process] = {}
        looked_at: Dict[Key, bool] = {}
        full = self._looks % _FULL_LOOK == 0
        self._looks += 1
        if full:
            self._others = set()
        for pid in self._pids():
            process = read_process(pid, self._proc)
            if process is None:
                continue
            key = process.pid, process.start
            belongs = self._known.get(key)
            about = self.about.get(key)
            if belongs is None or (about is not None and about.name != process.name):
                belongs = self._meet(key, process.name) or bool(belongs)
            looked_at[key] = belongs
            if not belongs:
                self._others.add(pid)
            if belongs and len(found) < _MOST_PROCESSES:
                found[key] = process
        if full:
            self._known = looked_at
        else:
            self._known.update(looked_at)
        return found

    def forget(self, key: Key) -> None:
        """Forget a process that has ended."""
        self.about.pop(key, None)

    def _pids(self) -> List[int]:
        if self._group is not None:
            return cgroup.processes(self._group)
        pids = []
        for name in os.listdir(self._proc):
            if not name.isdigit() or int(name) in self._others:
                continue
            if self._is_own(name):
                pids.append(int(name))
            else:
                self._others.add(int(name))
        return pids

    def _is_own(self, name: str) -> bool:
        try:
            return os.stat(f"{self._proc}/{name}").st_uid == self._uid
        except OSError:
            return False

    def _meet(self, key: Key, name: str) -> bool:
        directory = f"{self._proc}/{key[0]}"
        environ = _read(directory + "/environ", _MOST_ENVIRON).split(b"\0")
        if self._group is None and not any(mark in environ for mark in self._marks):
            return False
        command = _read(directory + "/cmdline", 400).replace(b"\0", b" ").strip()
        text = command.decode("utf-8", "replace")[:200]
        self.about[key] = About(name, text, _rank(environ, self._own))
        return True


def read_process(pid: int, proc: str = "/proc") -> Optional[Process]:
    """Return a process's figures; None if it is gone."""
    data = _read(f"{proc}/{pid}/stat", 4096)
    # The name may hold spaces and brackets.
    before, _, after = data.rpartition(b")")
    fields = after.split()
    if len(fields) < 22:
        return None
    state = fields[0].decode("ascii", "replace")
    ended = state in ("Z", "X") and len(fields) > 49
    return Process(
        pid=pid,
        start=int(fields[19]),
        parent=int(fields[1]),
        name=before.partition(b"(")[2].decode("utf-8", "replace"),
        state=state,
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        rss_bytes=int(fields[21]) * _PAGE,
        threads=int(fields[17]),
        wait_status=int(fields[49]) if ended else None,
    )


def _rank(environ: List[bytes], outside: Mapping[str, str]) -> Optional[int]:
    """Return a process's rank. outside: the environment of a process that is no rank."""
    values = dict(one.split(b"=", 1) for one in environ if b"=" in one)
    step = values.get(_STEP.encode(), b"").decode("ascii", "replace")
    for name in _RANKS:
        value = values.get(name.encode(), b"").decode("ascii", "replace")
        if name == "SLURM_PROCID":
            counts = step != outside.get(_STEP, "")
        else:
            counts = value != outside.get(name)
        if counts and re.fullmatch("[0-9]{1,6}", value):
            return int(value)
    return None


def _read(path: str, most: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = os.read(fd, most)
        while len(data) < most:
            more = os.read(fd, most - len(data))
            if not more:
                break
            data += more
    except OSError:
        return b""
    finally:
        os.close(fd)
    return data
