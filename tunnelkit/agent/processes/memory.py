"""The memory that a process takes, and those that were killed for it."""

from typing import TYPE_CHECKING, Iterator, Optional

if TYPE_CHECKING:
    from tunnelkit.messages.loop_events import Memory


def memory_of(pid: int) -> "Memory":
    """The memory that a process maps, and its part where pages are shared (smaps_rollup, proc(5)).
    Empty where the system doesn't tell."""
    found = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                name, value = line.split()[:2]
                if name in (b"Rss:", b"Pss:"):
                    found[name] = int(value) * 1024
        return {"rss_bytes": found[b"Rss:"], "share_bytes": found[b"Pss:"]}
    except (OSError, ValueError, KeyError):
        return {}


def oom_kills(proc: str = "/proc", mount: str = "/sys/fs/cgroup") -> Optional[int]:
    """Processes of this cgroup that the kernel has killed for memory so far; None where cgroups
    don't tell."""
    for path in _counters(proc, mount):
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            pass
    return None


def _counters(proc: str, mount: str) -> Iterator[str]:
    """The files that may have the count, for both versions of cgroups (cgroups(7))."""
    try:
        with open(f"{proc}/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        kinds, _, path = line.partition(":")[2].partition(":")
        # A container may see its own group alone, at the root of the mount.
        if not kinds:
            yield from (f"{mount}{path}/memory.events", f"{mount}/memory.events")
        elif "memory" in kinds.split(","):
            top = f"{mount}/memory"
            yield from (f"{top}{path}/memory.oom_control", f"{top}/memory.oom_control")
