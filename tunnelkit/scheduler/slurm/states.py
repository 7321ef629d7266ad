"""Slurm's job states, their meaning in plain words, and what a pending reason means for tk.

Source: man squeue, "JOB STATE CODES" (22.05 and 24.05). The reasons' meanings:
diagnosis/waiting/slurm_reasons.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.diagnosis.waiting.slurm_reasons import reason_of
from tunnelkit.model import JobState
from tunnelkit.scheduler.base import PendingCause

P, R, E, U = JobState.PENDING, JobState.RUNNING, JobState.ENDED, JobState.UNKNOWN

#: native state -> (JobState, plain words; None if the state is clear by itself)
STATES: dict[str, tuple[JobState, str | None]] = {
    "PENDING": (P, None),
    "CONFIGURING": (P, "nodes are allocated and are being made ready"),
    "POWER_UP_NODE": (P, "nodes are being powered up"),
    "REQUEUED": (P, "the job was put back into the queue"),
    "REQUEUE_FED": (P, "the job was put back into the queue"),
    "REQUEUE_HOLD": (P, "the job was put back into the queue and is held"),
    "RESV_DEL_HOLD": (P, "the job is held because its reservation was deleted"),
    "SPECIAL_EXIT": (P, "the job was put back into the queue and is held"),
    "RUNNING": (R, None),
    "RESIZING": (R, "the job is changing its size"),
    "SIGNALING": (R, "the job is being signalled"),
    # Suspended and stopped jobs keep their nodes and processes: the debuggee is frozen.
    "SUSPENDED": (R, "the job is suspended: its processes stand still until it is resumed"),
    "STOPPED": (R, "the job is stopped: its processes stand still but keep their CPUs"),
    # The job's script is over or being killed; with --requeue the job may run again (adapter.py).
    "COMPLETING": (E, "the job is over, its last processes are being cleared away"),
    "STAGE_OUT": (E, "the job is over, its files are being staged out"),
    "COMPLETED": (E, "the job ended by itself"),
    "CANCELLED": (E, "the job was cancelled"),
    "FAILED": (E, "the job's script failed"),
    "TIMEOUT": (E, "the job reached its time limit; `tk up --time` asks for more"),
    "DEADLINE": (E, "the job reached its deadline"),
    "NODE_FAIL": (E, "a node of the job failed; `tk up` asks for another one"),
    "BOOT_FAIL": (E, "a node of the job failed to boot"),
    "LAUNCH_FAILED": (E, "the job could not be launched on its node"),
    "OUT_OF_MEMORY": (
        E,
        "the job used more memory than it had asked for; `tk up --mem` asks for more",
    ),
    "PREEMPTED": (
        E,
        "the job was preempted by one of higher priority; with `tk up --requeue` "
        "such a job comes back",
    ),
    # A federation's sibling took the job over; this cluster does not say which one.
    "REVOKED": (U, "another cluster of the federation took the job"),
}

#: A verdict's code -> what the caller does about the job; WAIT for all others.
_CAUSES = {
    "limit-account": PendingCause.QUOTA,
    "limit-qos": PendingCause.QUOTA,
    "limit-user": PendingCause.QUOTA,
    "limit-array": PendingCause.QUOTA,
    # No other job's end frees a budget: its owner must act, or time passes until it is reset.
    "budget": PendingCause.HELD,
    "held-you": PendingCause.HELD,
    "held-admin": PendingCause.HELD,
    "launch-failed": PendingCause.HELD,
    "nodes-down": PendingCause.HELD,
    "partition-down": PendingCause.HELD,
    "never": PendingCause.FIX,
    "limit-job": PendingCause.FIX,
    "refused": PendingCause.FIX,
    "dependency-never": PendingCause.FIX,
    "reservation-gone": PendingCause.FIX,
}


def state_of(native: str) -> tuple[JobState, str | None]:
    """Return the JobState of a native state, and plain words; an unknown state is UNKNOWN."""
    return STATES.get(native, (U, f"Slurm calls its state {native!r}, which tk does not know"))


#: slurmctld says so, too, while it has lost the accounting's records for a moment.
_PASSING = frozenset({"InvalidAccount", "InvalidQOS"})


def may_pass(reason: str | None, partitions: Sequence[str]) -> bool:
    """Return True if a reason by which a job never starts may not be the last word.

    Slurm keeps one reason, of the partition that it tested last; another one of the job's may take
    it. And by nodes that are down for a while it says that none fits.
    Source: _job_runnable_test2 in slurmctld's job_scheduler.c, 23.02."""
    if reason in _PASSING:
        return True
    meaning = reason_of(reason)
    by_partition = meaning.code in ("never", "limit-job", "refused")
    return by_partition and (len(partitions) > 1 or (meaning.code == "never" and meaning.by_nodes))


def judge(reason: str | None) -> tuple[PendingCause, str]:
    """Return the PendingCause of a pending reason, and plain words.

    An unknown reason counts as WAIT, so that no job is cancelled for it.
    """
    meaning = reason_of(reason)
    return _CAUSES.get(meaning.code, PendingCause.WAIT), meaning.sentence
