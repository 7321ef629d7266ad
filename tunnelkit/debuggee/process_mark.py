"""The tag and the mark by which the agent (agent/processes/table.py) knows what descends from a
process.

The tag is an entry of the environment, as /proc/PID/environ shows it. The mark stays with a daemon
that has an empty environment and a session of its own: such a daemon keeps nothing of its origin
but its limits. So the mark is one: the soft limit of bytes in POSIX message queues, a few bytes
below the hard one, of which no program takes notice. fork, exec and setsid all hand it on.
"""

import contextlib
import os
import sys
from typing import Iterator, Optional

try:
    import resource
except ImportError:  # Windows
    pass

_NAME = b"TK_PROCESS="
_MARKS = 50_000
#: What stands in for a hard limit that is none.
_UNLIMITED_BYTES = 1 << 30


def retag(old: str, new: str) -> bool:
    """Write the new tag over the old one in this process's environment, which a fork leaves as it
    was. The tags must be of one length. False: the old one was not found.
    """
    import ctypes

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


def put_on(tag: str) -> bool:
    """Mark this process, and all that it starts from now on. False: the system can't."""
    limit = _limit(tag)
    if limit is None:
        return False
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (limit, _hard()))
    return True


def is_on(pid: int, tag: str) -> bool:
    """True if that process, or what it descends from, was marked so."""
    limit = _limit(tag)
    if limit is None:
        return False
    try:
        return bool(resource.prlimit(pid, resource.RLIMIT_MSGQUEUE)[0] == limit)
    except OSError:
        return False


@contextlib.contextmanager
def on(tag: Optional[str]) -> Iterator[None]:
    """Mark what is started meanwhile, but not this process. None: mark nothing."""
    before = resource.getrlimit(resource.RLIMIT_MSGQUEUE) if tag and _limit(tag) else None
    try:
        if tag is not None:
            put_on(tag)
        yield
    finally:
        if before is not None:
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, before)


def _limit(tag: str) -> Optional[int]:
    """The limit that stands for a tag (processes.ProcessTable.new_tag); None if none can."""
    if sys.platform != "linux" or not hasattr(resource, "prlimit"):
        return None
    hard = _hard()
    top = _UNLIMITED_BYTES if hard == resource.RLIM_INFINITY else hard
    pid, _, count = tag.partition(".")
    # Neighbours in time differ for sure; another agent's, which may be inside, most likely.
    number = 1 + (int(pid) * 7919 + int(count)) % _MARKS
    return top - number if top > 2 * _MARKS else None


def _hard() -> int:
    return int(resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1])
