"""The memory that a process takes."""

from typing import Dict

_FIELDS = {b"Rss:": "rss_bytes", b"Pss:": "share_bytes"}


def memory_of(pid: int) -> Dict[str, int]:
    """{"rss_bytes", "share_bytes"} of a process: what it maps, and its part of it where pages
    are shared (proc(5), smaps_rollup). Empty where the system doesn't tell."""
    found = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                words = line.split()
                if words and words[0] in _FIELDS:
                    found[_FIELDS[words[0]]] = int(words[1]) * 1024
    except (OSError, ValueError, IndexError):
        return {}
    return found
