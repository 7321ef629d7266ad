"""The schedulers of login hosts, one record each, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunnelkit.errors import SchedulerError
from tunnelkit.scheduler.base import LoginPrograms, Scheduler
from tunnelkit.scheduler.detect import Detected

if TYPE_CHECKING:
    from tunnelkit.scheduler.script_options import ScriptOptions


@dataclass(frozen=True)
class SchedulerKind:
    """One kind of scheduler.

    name: its value of `[cluster] scheduler`. program: submits jobs. needed: other programs,
    without which tk could submit a job, but not watch or cancel it. options: returns what reads its
    batch scripts, called with the programs' directories. make: returns the adapter;
    called with what was found, with True if jobs may be put back into the queue, and with the
    queue that is asked for.
    """

    name: str
    program: str
    options: Callable[[Mapping[str, str]], ScriptOptions]
    needed: tuple[str, ...]
    make: Callable[[Detected, bool, str | None], Scheduler]


def _slurm(found: Detected, requeues: bool, queue: str | None) -> Scheduler:
    from tunnelkit.scheduler.slurm.adapter import Slurm  # of the adapters a session needs one

    return Slurm(bin_dirs=found.bin_dirs, requeues=requeues)


def _pbs(found: Detected, requeues: bool, queue: str | None) -> Scheduler:
    from tunnelkit.scheduler.pbs.adapter import PBS
    from tunnelkit.scheduler.pbs.submit import server_of

    return PBS(bin_dirs=found.bin_dirs, history=found.history, server=server_of(queue))


def _torque(found: Detected, requeues: bool, queue: str | None) -> Scheduler:
    from tunnelkit.scheduler.pbs.submit import server_of
    from tunnelkit.scheduler.pbs.torque import Torque

    return Torque(bin_dirs=found.bin_dirs, server=server_of(queue))


def _slurm_options(bin_dirs: Mapping[str, str]) -> ScriptOptions:
    from tunnelkit.scheduler.slurm.script_options import SlurmScriptOptions

    return SlurmScriptOptions(bin_dirs=bin_dirs)


def _pbs_options(bin_dirs: Mapping[str, str]) -> ScriptOptions:
    from tunnelkit.scheduler.pbs.script_options import PbsScriptOptions

    return PbsScriptOptions(bin_dirs=bin_dirs)


def _torque_options(bin_dirs: Mapping[str, str]) -> ScriptOptions:
    from tunnelkit.scheduler.pbs.script_options import TorqueScriptOptions

    return TorqueScriptOptions(bin_dirs=bin_dirs)


SCHEDULERS = (
    SchedulerKind("slurm", "sbatch", _slurm_options, ("squeue", "scancel"), _slurm),
    SchedulerKind("pbs", "qsub", _pbs_options, ("qstat", "qdel"), _pbs),
    SchedulerKind("torque", "qsub", _torque_options, ("qstat", "qdel"), _torque),
)


def script_options(name: str, scheduler: Scheduler | None = None) -> ScriptOptions | None:
    """Return what reads the batch scripts of a kind of scheduler; None for another name.

    scheduler: knows where its programs are."""
    kind = next((one for one in SCHEDULERS if one.name == name), None)
    if kind is None:
        return None
    programs = (kind.program, *kind.needed)
    dirs: dict[str, str] = {}
    if isinstance(scheduler, LoginPrograms):
        dirs = {one: scheduler.directory_of(one) for one in programs}
    return kind.options(dirs)


def adapter(
    wanted: str,
    found: Detected,
    login: str,
    *,
    requeues: bool = False,
    queue: str | None = None,
) -> Scheduler | None:
    """Return the adapter for `wanted` ("auto" or a name); None if there is no scheduler.

    requeues: the job may be put back into the queue. queue: the one that is asked for.
    Raises SchedulerError if the login host does not have the scheduler that is wanted.
    """
    name = found.name if wanted == "auto" else wanted
    kind = next((one for one in SCHEDULERS if one.name == name), None)
    if kind is None:
        return None
    if kind.program not in found.bin_dirs:
        raise SchedulerError(
            f"no {name} found on {login}",
            cause=f"{kind.program} is neither on the PATH nor in the usual places",
            hint="put its directory on the PATH of shells without a terminal (bash: at the top of "
            "~/.bashrc); `tk doctor` shows the programs. Only where there is no scheduler: "
            '[cluster] scheduler = "none"',
        )
    missing = [program for program in kind.needed if program not in found.bin_dirs]
    if missing:
        raise SchedulerError(
            f"no {missing[0]} found on {login}",
            cause=f"there is {kind.program}, but {' and '.join(missing)} can't be found",
            hint="have the site's directory on the PATH of non-interactive shells; `tk doctor` "
            "shows the programs that it finds",
        )
    return kind.make(found, requeues, queue)
