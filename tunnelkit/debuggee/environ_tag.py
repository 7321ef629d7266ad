"""Changes a process's own entry in /proc/PID/environ, which a fork leaves as it was.

The agent finds what descends from a debuggee by that entry (agent/processes/table.py), also what
was forked and never executed anything.
"""

import ctypes
import os

_NAME = b"TK_PROCESS="


def retag(old: str, new: str) -> bool:
    """Write the new tag over the old one, which must be as long. False: it was not found."""
    before, after = _NAME + os.fsencode(old) + b"\0", _NAME + os.fsencode(new) + b"\0"
    if len(before) != len(after):
        return False
    try:
        with open("/proc/self/stat", "rb") as file:
            # proc(5): fields 50 and 51, env_start and env_end; the third follows the name.
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[50 - 3]), int(fields[51 - 3])
        block = ctypes.string_at(start, end - start) if start and end > start else b""
    except (OSError, ValueError, IndexError):
        return False
    position = (b"\0" + block).find(b"\0" + before)
    if position < 0:
        return False
    ctypes.memmove(start + position, after, len(after))
    return True
