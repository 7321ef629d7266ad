"""Where the agent's socket lies: a 0700 directory of our own, on the node itself.

The agent and those who look for it run in different environments (job, ssh,
srun), so the place may depend on nothing but the uid and the agent's name.
"""

import os
import re
import stat
from typing import Iterator

#: Node-local places, tried in order. /tmp first; another user who squats on our name
#: there costs us only the first choice.
_PARENTS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - checked by `_is_ours`
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class NoPlace(Exception):
    """No directory on this node can hold the socket safely."""


def check_name(name: str) -> str:
    """Return `name` if it may be an agent's name; raise ValueError if not."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"bad agent name {name!r}")
    return name


def candidates() -> Iterator[str]:
    """Directories where an agent of this user may have its socket; made or not."""
    for parent in _PARENTS:
        yield os.path.join(parent, f"tunnelkit-{os.getuid()}")


def make_directory() -> str:
    """Make (or find) our directory and return it. Raises NoPlace."""
    reasons = []
    for path in candidates():
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            continue
        if _is_ours(path):
            return path
        reasons.append(f"{path}: not a private directory of ours")
    raise NoPlace("; ".join(reasons))


def find_sockets(name: str) -> Iterator[str]:
    """Paths where the agent `name` may listen, in directories that are safely ours."""
    for path in candidates():
        if _is_ours(path):
            socket_path = os.path.join(path, check_name(name) + ".sock")
            if os.path.exists(socket_path):
                yield socket_path


def _is_ours(path: str) -> bool:
    """True for a real directory (no symlink), owned by us, closed to all others."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and stat.S_IMODE(status.st_mode) & 0o077 == 0
    )
