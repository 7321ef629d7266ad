"""The memory that a process takes."""

from typing import TYPE_CHECKING

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
