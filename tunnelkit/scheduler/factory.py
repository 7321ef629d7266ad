"""Choice of the scheduler adapter for a login host."""

from __future__ import annotations

from tunnelkit.errors import SchedulerError
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.scheduler.detect import Detected
from tunnelkit.scheduler.pbs.adapter import PBS
from tunnelkit.scheduler.pbs.torque import Torque
from tunnelkit.scheduler.slurm.adapter import Slurm

_PROGRAMS = {"slurm": "sbatch", "pbs": "qsub", "torque": "qsub"}
#: Without these commands tk could submit a job, but not watch or cancel it.
_NEEDED = {"slurm": ("squeue", "scancel"), "pbs": ("qstat", "qdel"), "torque": ("qstat", "qdel")}


def adapter(
    wanted: str, found: Detected, login: str, *, requeues: bool = False
) -> Scheduler | None:
    """Return the adapter for `wanted` ("auto" or a name); None if there is no scheduler.

    requeues: the job may be put back into the queue.
    Raises SchedulerError if the login host does not have the scheduler that is wanted.
    """
    name = found.name if wanted == "auto" else wanted
    if name == "none":
        return None
    bin_dir = found.bin_dirs.get(_PROGRAMS[name])
    if bin_dir is None:
        raise SchedulerError(
            f"no {name} found on {login}",
            cause=f"{_PROGRAMS[name]} is neither on the PATH nor in the usual places",
            hint='set [cluster] scheduler = "none", or another login host',
        )
    missing = [program for program in _NEEDED[name] if program not in found.bin_dirs]
    if missing:
        raise SchedulerError(
            f"no {missing[0]} found on {login}",
            cause=f"there is {_PROGRAMS[name]}, but {' and '.join(missing)} can't be found",
            hint="have the site's directory on the PATH of non-interactive shells; `tk doctor` "
            "tells what is found",
        )
    dirs = found.bin_dirs
    if name == "slurm":
        return Slurm(bin_dirs=dirs, requeues=requeues)
    return Torque(bin_dirs=dirs) if name == "torque" else PBS(bin_dirs=dirs, history=found.history)
