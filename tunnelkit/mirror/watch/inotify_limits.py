"""The system's limits on file watches, and which directories have none (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator

_IN_DELETE_SELF = 0x400
_WATCHES, _INSTANCES = errno.ENOSPC, errno.EMFILE
#: The sysctls that limit each, of the system and of a user namespace (a container).
_LIMITS = {
    _WATCHES: ("fs.inotify.max_user_watches", "user.max_inotify_watches"),
    _INSTANCES: ("fs.inotify.max_user_instances", "user.max_inotify_instances"),
}
_ADVICE = {_WATCHES: 1_048_576, _INSTANCES: 1_024}


def limits(root: str = "/proc/sys") -> dict[str, int]:
    """Return the present limits by their sysctls' names; empty on systems without them.

    root: where the kernel shows its sysctls.
    """
    found = {}
    for name in (name for names in _LIMITS.values() for name in names):
        try:
            with open(f"{root}/{name.replace('.', '/')}", encoding="ascii") as stream:
                found[name] = int(stream.read())
        except (OSError, ValueError):
            continue
    return found


def explain(error: OSError) -> str:
    """Return in one line why there are no file events, and what to do."""
    reached = _reached(error.errno or 0)
    return f"file events don't work: {reached or error.strerror or error}"


def explain_unwatched(count: int, path: str) -> str:
    """Return in one line that some directories have no watch, and what to do."""
    more = f" and {count - 1} more directories" if count > 1 else ""
    return f"no file events for {path}{more}: {_reached(_WATCHES) or 'they have no watch'}"


def _reached(number: int) -> str | None:
    now = limits()
    names = [name for name in _LIMITS.get(number, ()) if name in now]
    if not names:
        return None
    name = min(names, key=now.__getitem__)  # the one that is met first
    advice = max(_ADVICE[number], 2 * now[name])
    return (
        f"the limit {name} = {now[name]} is reached, so changes are looked for by scans. "
        f"Raise it: sudo sysctl {name}={advice}"
    )


def watched_inodes() -> set[int] | None:
    """Return the inode numbers of all watches of this process; None if they are unknown."""
    found: set[int] = set()
    known = False
    try:
        for fd in os.listdir("/proc/self/fd"):
            try:
                if "inotify" not in os.readlink(f"/proc/self/fd/{fd}"):
                    continue
                with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as stream:
                    for line in stream:
                        if line.startswith("inotify "):
                            known = True
                            found.add(int(line.split(" ino:", 1)[1].split(" ", 1)[0], 16))
            except (OSError, ValueError, IndexError):
                continue  # closed meanwhile
    except OSError:
        return None
    return found if known else None


def unwatched(top: str, watched: set[int], interesting: Callable[[str], bool]) -> list[str]:
    """Return the readable directories from `top` downwards that have no watch (blocking)."""
    missing = []
    for path, inode in _directories(top, interesting):
        if inode in watched or not os.access(path, os.R_OK):
            continue
        with contextlib.suppress(OSError):  # gone meanwhile
            if os.lstat(path).st_ino not in watched:  # a listing tells another for a mount
                missing.append(path)
    return missing


def _directories(top: str, interesting: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
    try:
        if os.path.islink(top):
            return
        yield top, os.stat(top).st_ino
    except OSError:
        return
    stack = [top]
    while stack:
        directory = stack.pop()
        try:
            with os.scandir(directory) as found:
                below = [one for one in found if one.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        for entry in below:
            if interesting(entry.path):
                yield entry.path, entry.inode()
                stack.append(entry.path)


def exhausted(directory: str) -> bool:
    """Return True if no more directory can be watched now; tries one."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        return ctypes.get_errno() == errno.EMFILE
    try:
        return (
            libc.inotify_add_watch(fd, os.fsencode(directory), ctypes.c_uint32(_IN_DELETE_SELF)) < 0
            and ctypes.get_errno() == errno.ENOSPC
        )
    finally:
        os.close(fd)
