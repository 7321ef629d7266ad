"""The adapter of the scheduler that a login host has."""

from __future__ import annotations

from tunnelkit.errors import SchedulerError
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.scheduler.detect import Detected
from tunnelkit.scheduler.pbs import PBS
from tunnelkit.scheduler.slurm import Slurm
from tunnelkit.scheduler.torque import Torque

_PROGRAMS = {"slurm": "sbatch", "pbs": "qsub", "torque": "qsub"}


def adapter(
    wanted: str, found: Detected, login: str, *, requeues: bool = False
) -> Scheduler | None:
    """The adapter for `wanted` (auto or a name); None where there is no scheduler. requeues: the
    job may be put back into the queue.

    Raises SchedulerError if the login host does not have the one that is wanted.
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
    if name == "slurm":
        return Slurm(bin_dir, requeues=requeues)
    return Torque(bin_dir) if name == "torque" else PBS(bin_dir, history=found.history)
