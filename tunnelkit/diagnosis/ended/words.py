"""Sizes, times, signals and who sent them in words."""

from __future__ import annotations

from tunnelkit.diagnosis.evidence.box import SignalSeen

#: The parts of Slurm and PBS that signal a job's processes on its node.
_DAEMONS = ("slurmstepd", "slurmd", "pbs_mom", "pbs_demux")
SIGNALS = {
    1: "HUP",
    2: "INT",
    3: "QUIT",
    4: "ILL",
    5: "TRAP",
    6: "ABRT",
    7: "BUS",
    8: "FPE",
    9: "KILL",
    10: "USR1",
    11: "SEGV",
    12: "USR2",
    13: "PIPE",
    14: "ALRM",
    15: "TERM",
    24: "XCPU",
    25: "XFSZ",
    31: "SYS",
}
ABRT, BUS, FPE, HUP, ILL, INT, KILL, PIPE, SEGV, TERM, XCPU, XFSZ = (
    6, 7, 8, 1, 4, 2, 9, 13, 11, 15, 24, 25,
)  # fmt: skip


def signal_name(number: int) -> str:
    """Return `KILL` for 9, and `signal 53` for one without a common name."""
    return SIGNALS.get(number, f"signal {number}")


def ended_by(seen: SignalSeen, own_uid: int | None) -> str:
    """Say who ended the job by a signal: `was ended by TERM from uid 1000 (bash)`."""
    signal, name = signal_name(seen.signal), seen.sender_name
    if name in _DAEMONS:
        return "was ended by the scheduler: cancelled, preempted, or at its time limit"
    if seen.sender_uid == 0 and not name:
        return (
            f"was ended by {signal} from root, most often the scheduler: cancelled, preempted, or "
            "at its time limit"
        )
    if seen.sender_uid is None and not name:
        return f"was ended by {signal}; who sent it is not on record"
    who = "root" if seen.sender_uid == 0 else f"uid {seen.sender_uid}"
    if seen.sender_uid is not None and seen.sender_uid == own_uid:
        who = "a process of yours"
    return f"was ended by {signal} from {who}" + (f" ({name})" if name else "")


def memory_option(size_bytes: float) -> str:
    """Return the value for --mem that is at least so much: `80G`, `900M`."""
    mega = int(-(-size_bytes // (1 << 20)))
    return f"{-(-mega // 1024)}G" if mega >= 4096 else f"{-(-mega // 100) * 100}M"


def clock(seconds: float) -> str:
    """Return `1:02:03`, `2-03:00:00`."""
    minutes, rest = divmod(int(max(0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{minutes:02}:{rest:02}"
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}" if days else text


def span(seconds: float) -> str:
    """Return `4 min`, `2 h 10 min`, `9 s`."""
    whole = int(max(0, seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min"
