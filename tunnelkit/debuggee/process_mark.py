"""A mark that all that descends from a process carries, whatever it does to its environment.

A daemon with an empty environment and a session of its own keeps nothing of its origin but its
limits. So the mark is one: the soft limit of bytes in POSIX message queues, a few bytes below the
hard one, of which no program takes notice. fork, exec and setsid all hand it on.
"""

import contextlib
from typing import Iterator, Optional

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]  # not on Windows

_MARKS = 50_000
#: What stands in for a hard limit that is none.
_UNLIMITED_BYTES = 1 << 30


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
    if not hasattr(resource, "RLIMIT_MSGQUEUE") or not hasattr(resource, "prlimit"):
        return None
    hard = _hard()
    top = _UNLIMITED_BYTES if hard == resource.RLIM_INFINITY else hard
    pid, _, count = tag.partition(".")
    # Neighbours in time differ for sure; another agent's, which may be inside, most likely.
    number = 1 + (int(pid) * 7919 + int(count)) % _MARKS
    return top - number if top > 2 * _MARKS else None


def _hard() -> int:
    return int(resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1])
