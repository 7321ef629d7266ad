"""All nodes' windows together, and what the rules ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.evidence.stacks import StackView
from tunnelkit.diagnosis.evidence.storage import NO_STORAGE, StorageView
from tunnelkit.diagnosis.evidence.window import (
    GpuView,
    NodeWindow,
    ProcessView,
    ThreadView,
)

#: Programs that wait for others by their nature.
_HELPERS = frozenset(
    {
        *("bash", "sh", "dash", "zsh", "csh", "tcsh", "ksh", "fish", "slurm_script"),
        *("sleep", "tail", "tee", "cat", "timeout", "time", "nohup", "env", "xargs", "watch"),
        *("srun", "mpirun", "mpiexec", "orterun", "prterun", "prted", "orted", "hydra_pmi_proxy"),
        *("mpiexec.hydra", "torchrun", "accelerate", "deepspeed", "slurmstepd", "pbs_attach"),
        *("ssh", "sshd", "tmux", "screen"),
    }
)
#: debugpy's adapter, which a program under debugpy may have started.
_ADAPTER = "/debugpy/adapter"
_ALL_GPUS = ("all", "void")


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """Processes of one node that may use the same CPUs. run, wait: in CPUs."""

    window: NodeWindow
    cpus: frozenset[int]
    processes: tuple[ProcessView, ...]

    @property
    def run(self) -> float:
        """CPUs that they used."""
        return sum(one.run + one.children for one in self.processes)

    @property
    def wait(self) -> float:
        """CPUs that they waited for."""
        return sum(one.wait for one in self.processes)

    @property
    def wanting(self) -> int:
        """Threads that want a CPU for most of the time."""
        return sum(one.wanting for one in self.processes)


@dataclass(frozen=True, slots=True)
class Look:
    """A job, the windows of its nodes, the stacks of processes that stand still, and the file
    system of its log."""

    job: JobView
    windows: tuple[NodeWindow, ...]
    stacks: tuple[StackView, ...] = ()
    storage: StorageView = NO_STORAGE

    def stack_of(self, window: NodeWindow, one: ProcessView) -> StackView | None:
        """Return the Python stack of a process; None if it was not read."""
        mine = (each for each in self.stacks if (each.node, each.pid) == (window.node, one.pid))
        return next(mine, None)

    def processes(self) -> Iterator[tuple[NodeWindow, ProcessView]]:
        """Return all processes, each with its node."""
        for window in self.windows:
            for one in window.processes:
                yield window, one

    def programs(self) -> list[tuple[NodeWindow, ProcessView]]:
        """Return the processes without shells, launchers and the like."""
        return [
            (window, one)
            for window, one in self.processes()
            if one.name not in _HELPERS and not one.launches and _ADAPTER not in one.argv
        ]

    def leaves(self) -> list[tuple[NodeWindow, ProcessView]]:
        """Return the programs that have started no other program."""
        programs = self.programs()
        parents = {(window.node, one.parent) for window, one in programs}
        return [(window, one) for window, one in programs if (window.node, one.pid) not in parents]

    def groups(self) -> list[CpuGroup]:
        """Return the processes by node and allowed CPUs."""
        found = []
        for window in self.windows:
            for cpus in dict.fromkeys(one.cpus for one in window.processes if one.cpus):
                mine = tuple(one for one in window.processes if one.cpus == cpus)
                found.append(CpuGroup(window, cpus, mine))
        return found

    @property
    def run(self) -> float:
        """CPUs that the job used."""
        return sum(one.run + one.children for _, one in self.processes())

    def cpus_of(self, window: NodeWindow) -> int:
        """Return how many CPUs the job may use on a node: those allowed, or those asked for if
        the node lets it use more."""
        allowed = len(frozenset().union(*(one.cpus for one in window.processes)))
        asked = self.job.need.cpus
        return min(allowed, asked) if allowed and asked else allowed or asked

    @property
    def cpus(self) -> int:
        """CPUs that the job may use on all nodes."""
        return sum(self.cpus_of(window) for window in self.windows)

    def gpus(self) -> list[tuple[NodeWindow, GpuView]]:
        """Return the job's GPUs."""
        return [
            (window, one)
            for window in self.windows
            for one in window.gpus
            if _is_the_jobs(window, one)
        ]

    def where(self, window: NodeWindow) -> str:
        """Return ` on NODE` if there is more than one."""
        return f" on {window.node}" if len(self.windows) > 1 else ""

    def who(self, window: NodeWindow, one: ProcessView) -> str:
        """Return a process's name for people."""
        name = f"rank {one.rank}" if self.has_ranks and one.rank is not None else one.name
        return f"{name} (pid {one.pid}{self.where(window)})"

    @property
    def has_ranks(self) -> bool:
        """True if there are several."""
        return len({one.rank for _, one in self.processes()} - {None}) > 1

    def only_rank(self, rank: int) -> Look:
        """Return the same with the processes and threads of one rank alone."""
        windows = []
        for window in self.windows:
            mine = tuple(one for one in window.processes if one.rank == rank)
            pids = {one.pid for one in mine}
            if mine:
                threads = tuple(one for one in window.threads if one.pid in pids)
                windows.append(replace(window, processes=mine, threads=threads))
        return Look(self.job, tuple(windows), self.stacks, self.storage)


def main_thread(window: NodeWindow, one: ProcessView) -> ThreadView | None:
    """Return a process's main thread; None if it was not sampled."""
    return next((two for two in window.threads if two.pid == two.tid == one.pid), None)


def threads_of(window: NodeWindow, processes: Iterable[ProcessView]) -> list[ThreadView]:
    """Return the sampled threads of some processes."""
    pids = {one.pid for one in processes}
    return [one for one in window.threads if one.pid in pids]


def users_of(window: NodeWindow, gpu: GpuView) -> list[ProcessView]:
    """Return the job's processes on a GPU."""
    listed = set(gpu.processes or ())
    return [one for one in window.processes if listed & {one.pid, *one.pids}]


def mean(values: Iterable[float]) -> float:
    """Return the mean; 0 of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def percent(share: float) -> str:
    """Format a share: `91 %`."""
    return f"{share * 100:.0f} %"


def _is_the_jobs(window: NodeWindow, gpu: GpuView) -> bool:
    if users_of(window, gpu):
        return True
    named = [
        one.env[name]
        for one in window.processes
        for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
        if name in one.env
    ] or [
        one.env[name]
        for one in window.processes
        for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "NVIDIA_VISIBLE_DEVICES")
        if name in one.env
    ]
    words = {word.strip() for text in named for word in text.split(",")} - {""}
    return any(
        word == str(gpu.index) or word in _ALL_GPUS[:1] or (len(word) > 7 and word in gpu.uuid)
        for word in words
    )
