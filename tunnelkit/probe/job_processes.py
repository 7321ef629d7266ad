"""The processes of a job on this node: by its cgroup, or by its number in their environment."""

import os
import re
from typing import Dict, Iterable, List, Optional, Set, Tuple

from tunnelkit.probe import proc

#: Of a process's environment, for the rules.
_TELLING = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
    "SLURM_CPUS_PER_TASK", "NCPUS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
)  # fmt: skip
#: The first that is set counts: torchrun's workers inherit those of the srun or mpirun before it,
#: and under mpirun SLURM_PROCID is the launcher's.
_RANKS = _TELLING[:5]
#: Equal in all processes of a job on one node. Several clusters may share a machine, and number
#: their jobs alike.
_SAME = ("SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME", "PBS_JOBCOOKIE")
#: A program of `tk loop`, one that stands by, and the server that forks both: all look alike.
_DEBUGGEE = re.compile(r"tunnelkit[./]debuggee")
#: tk's own: the agent and the probe.
_OWN = re.compile(r"/(agent|probe)-[0-9a-f]{8,}[^/]*\.zip|tunnelkit[./](agent|probe)")
_MOST = 512
#: A pid that was another's may have become the job's: all are looked at so often.
_FULL_LOOK = 10
#: CPUs. pydevd's threads of one that stands by look at their queues.
_RAN = 0.03


class JobProcess:
    """One process. rank: of its job step, or None. argv: its first words. of_loop: tk's loop has
    started it: the user's program, or one that stands by."""

    __slots__ = ("argv", "cgroup", "env", "of_loop", "parent", "pid", "rank", "started")

    def __init__(self, pid: int, parent: int, started: str, argv: str, env: Dict[str, str]) -> None:
        self.pid = pid
        self.parent = parent
        self.started = started
        self.cgroup = proc.text_of(f"/proc/{pid}/cgroup", 4096)
        self.of_loop = _DEBUGGEE.search(argv) is not None
        self.argv = "python (tk loop)" if self.of_loop else argv[:300]
        self.env = {name: env[name][:200] for name in _TELLING if name in env}
        # RANK alone is a common word; torchrun and its kind always say of how many.
        names = _RANKS if "WORLD_SIZE" in env else _RANKS[1:]
        ranks = [env[name] for name in names if env.get(name, "").isdigit()]
        self.rank = int(ranks[0]) if ranks else None


class JobProcesses:
    """Finds a job's processes. job_id: "" for the job that this process is in.

    Slurm's cgroups have an array's element by its own number: by 1000_3 none is found."""

    def __init__(self, job_id: str) -> None:
        self._job = job_id or os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID") or ""
        number = re.match(r"[0-9]+", self._job)
        self._number = number[0] if number else "no job"
        #: A directory `job_4711` (Slurm) or `4711.server` (PBS).
        names = [f"job_{self._number}"] + ([re.escape(self._job)] if "." in self._job else [])
        pattern = rf"/(?:{'|'.join(names)})(?:\.\w+)?(?:/|$)"
        self._cgroup = re.compile(pattern, re.M) if number and "_" not in self._job else None
        self._known: Dict[int, Tuple[str, Optional[JobProcess]]] = {}
        #: Pids of other processes, left out until the next full look.
        self._others: Set[int] = set()
        self._looks = 0

    def look(self) -> Dict[int, JobProcess]:
        """Return those that live now; a process that was seen before is not read again."""
        found: Dict[int, JobProcess] = {}
        own = os.getuid()
        group = os.getpgrp()
        if self._looks % _FULL_LOOK == 0:
            self._others = set()
        self._looks += 1
        for pid in proc.numbers_in("/proc"):
            if pid in self._others:
                continue
            known = pid in self._known
            try:
                if not known and (
                    os.stat(f"/proc/{pid}").st_uid != own or os.getpgid(pid) == group
                ):
                    self._others.add(pid)
                    continue
            except OSError:
                continue
            one = self._one(pid)
            if one is None:
                self._others.add(pid)
            elif len(found) < _MOST:
                found[pid] = one
        return found if self._job else {}

    def _one(self, pid: int) -> Optional[JobProcess]:
        fields = proc.stat_fields(proc.text_of(f"/proc/{pid}/stat", 2048))
        if len(fields) < 20 or fields[0] in "ZX":
            return None
        known = self._known.get(pid)
        if known is None or known[0] != fields[19]:
            known = self._known[pid] = (fields[19], self._read(pid, fields))
        return known[1]

    def _read(self, pid: int, fields: List[str]) -> Optional[JobProcess]:
        text = proc.whole_text_of(f"/proc/{pid}/environ")
        if self._number not in text and not self._by_cgroup(pid):
            return None
        words = text.split("\0")
        env = {name: value for name, _, value in (word.partition("=") for word in words)}
        if not self._is_of_job(pid, env):
            return None
        argv = proc.text_of(f"/proc/{pid}/cmdline", 4096).replace("\0", " ").strip()
        if _OWN.search(argv) and not _DEBUGGEE.search(argv):
            return None
        return JobProcess(pid, int(fields[1]), fields[19], argv, env)

    def _is_of_job(self, pid: int, env: Dict[str, str]) -> bool:
        own = os.environ
        if any(name in own and env.get(name, own[name]) != own[name] for name in _SAME):
            return False
        return (self._job in _jobs_of(env)) or self._by_cgroup(pid)

    def _by_cgroup(self, pid: int) -> bool:
        text = proc.text_of(f"/proc/{pid}/cgroup", 4096)
        return self._cgroup is not None and self._cgroup.search(text) is not None


def programs(
    processes: Dict[int, JobProcess], run: Dict[int, float], known: Iterable[int]
) -> Set[int]:
    """Return the pids of the user's programs.

    Of those that a loop has started: known ones, those that ran, and what descends from these. One
    that stands by does not run. run: CPUs that each has used."""
    begun = {pid for pid in known if pid in processes}
    begun |= {pid for pid, one in processes.items() if one.of_loop and run.get(pid, 0.0) > _RAN}
    more = begun
    while more:
        more = {pid for pid, one in processes.items() if one.parent in more} - begun
        begun |= more
    return {pid for pid, one in processes.items() if not one.of_loop or pid in begun}


def _jobs_of(env: Dict[str, str]) -> Iterable[str]:
    task = f"{env.get('SLURM_ARRAY_JOB_ID', '')}_{env.get('SLURM_ARRAY_TASK_ID', '')}"
    return (env.get("SLURM_JOB_ID", ""), env.get("PBS_JOBID", ""), task)
