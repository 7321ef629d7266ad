"""The run that a request leads to on this computer: variables, limits, what differs from a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tunnelkit.diagnosis.sizes import size
from tunnelkit.scheduler.script_options import ScriptOptions, ScriptRequest
from tunnelkit.simulate.runners.base import Limits
from tunnelkit.simulate.runners.process_tree import MARK_VARIABLE

#: What stays of the environment of a job that gets none of the submission's.
_CLEAN = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
#: A job has no such variable of this computer's schedulers, and no terminal of this one.
_NOT_A_JOBS = ("SLURM_", "SBATCH_", "PBS_")


@dataclass(frozen=True, slots=True)
class Computer:
    """This computer. gpus: whether it has one that a program could use."""

    name: str
    cpus: int
    mem_bytes: int | None
    gpus: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A run to be. notes: what differs from the job, for people."""

    limits: Limits
    notes: tuple[str, ...]


def make_plan(request: ScriptRequest, computer: Computer, stop_s: float | None) -> Plan:
    """Return the limits here, and what of the job is missing here."""
    notes: list[str] = []
    memory, cpus = request.mem_bytes, min(request.cpus, computer.cpus)
    if memory is None:
        notes.append("no memory limit: none is asked for, and the cluster's default is not known")
    elif computer.mem_bytes is not None and memory > computer.mem_bytes:
        have = size(computer.mem_bytes)
        notes.append(f"this computer has {have}: the limit of {size(memory)} can't be reached")
    if cpus < request.cpus:
        notes.append(f"this computer has {cpus} of {request.cpus} CPUs")
    if request.gpus and not computer.gpus:
        notes.append("this computer has no GPU: CUDA_VISIBLE_DEVICES is empty")
    if request.nodes > 1:
        notes.append(f"one of {request.nodes} nodes is simulated, with its share")
    if request.tasks > 1:
        notes.append(f"one of {request.tasks} tasks runs")
    if request.array_first is not None:
        notes.append(f"of the array, element {request.array_first} runs")
    return Plan(Limits(memory, cpus, request.time_s, stop_s), tuple(notes))


def environment(
    options: ScriptOptions,
    request: ScriptRequest,
    computer: Computer,
    here: Mapping[str, str],
    directory: str,
) -> dict[str, str]:
    """Return the run's variables. here: this command's."""
    kept = {
        name: value
        for name, value in here.items()
        if not name.startswith(_NOT_A_JOBS) and (not request.clean or name in _CLEAN)
    }
    kept |= options.variables(request, computer.name, directory, here)
    kept["TK_SIMULATE"] = "1"
    if request.gpus and computer.gpus:
        kept.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(request.gpus))))
    else:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    return kept


def this_computer() -> Computer:
    """Look at this computer."""
    try:
        memory: int | None = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = None
    gpus = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd")
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Computer(os.uname().nodename, cpus or 1, memory, gpus)


def marked(environ: Mapping[str, str], name: str, bin_dir: str) -> dict[str, str]:
    """Return the variables with the run's own mark, and the stand-ins first on the PATH."""
    path = f"{bin_dir}:{environ.get('PATH', os.defpath)}"
    return {**environ, "PATH": path, MARK_VARIABLE: name}
