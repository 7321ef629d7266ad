"""The record that tk's black box has of one job on one node. Written by tk itself, in the job.

None is "not counted", never zero. Counters are differences over the run, not totals.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """One memory cgroup. level: "job", "step", "task" or "above" (more than this job is in it).

    oom: how often this level's own limit was reached with nothing left to reclaim (v1: the limit
    level was full when a process of it was killed). oom_kill: processes of it that the kernel
    killed. refused: how often its limit was met, which page cache alone does. limit_bytes: None if
    it has no limit.
    """

    level: str
    path: str = ""
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    oom: int | None = None
    oom_kill: int | None = None
    refused: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of one process: exactly one of code and signal, or neither if it is not known.

    rank: None for a process that is no rank. cpu_s: CPU time that it had used. rss_bytes: at its
    last sample.
    """

    pid: int
    name: str = ""
    rank: int | None = None
    code: int | None = None
    signal: int | None = None
    ended_s: float | None = None
    cpu_s: float | None = None
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SignalSeen:
    """A signal that reached tk's process in the job, with its sender (siginfo).

    sender_uid, sender_pid: None where the kernel or another PID namespace sent it.
    """

    signal: int
    time_s: float
    sender_uid: int | None = None
    sender_pid: int | None = None
    sender_name: str = ""


@dataclass(frozen=True, slots=True)
class BoxSample:
    """One sample. cpu_s, log_bytes: totals up to here. gpu_busy: 0 to 1, the busiest GPU's."""

    time_s: float
    cpu_s: float | None = None
    rss_bytes: int | None = None
    log_bytes: int | None = None
    gpu_busy: float | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class GpuFault:
    """An error of a GPU. xid: of the driver's event; nvml: the return code of a call."""

    gpu: int
    xid: int | None = None
    nvml: int | None = None
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class BoxView:
    """The black box of one job on one node.

    uid: of the job's user. written_s: the last write; after it nothing was seen. memory: the
    innermost level first. node_oom_kills: rise of oom_kill in /proc/vmstat, the whole node's.
    ends: in order of time, the first failing one first among those that failed. samples: the
    oldest first. cpu_limit_s: the hard RLIMIT_CPU. stacks: of the main thread when the program
    last stood still, "" if none was taken.

    attempt: how often the job had started before. holds_agent: the job's script only holds tk's
    agent, and programs come and go in it: their ends are program_ends. agent_code: as the script's
    shell saw it, 128+N for a signal. ended_s: when the script ended; None if the record stops
    before. killed_s: when the kernel killed for memory last. victims: the processes that it killed,
    as far as that is known; one without a signal is only the likeliest. log_text: the end of the
    script's log.
    """

    node: str = ""
    uid: int | None = None
    started_s: float | None = None
    written_s: float | None = None
    memory: tuple[MemoryLevel, ...] = ()
    node_oom_kills: int | None = None
    ends: tuple[ProcessEnd, ...] = ()
    signals: tuple[SignalSeen, ...] = ()
    samples: tuple[BoxSample, ...] = ()
    gpu_faults: tuple[GpuFault, ...] = ()
    cpu_limit_s: int | None = None
    stacks: str = ""
    missing: tuple[str, ...] = ()
    attempt: int = 0
    holds_agent: bool = False
    agent_code: int | None = None
    ended_s: float | None = None
    killed_s: float | None = None
    victims: tuple[ProcessEnd, ...] = ()
    program_ends: tuple[ProcessEnd, ...] = ()
    log_text: str = ""

    @property
    def first_failure(self) -> ProcessEnd | None:
        """The process that failed first; None if none has failed."""
        return next((one for one in self.ends if one.code or one.signal), None)
