"""The directory of the agent's socket: 0700, this user's own, on the node itself.

The agent and its clients run in different environments (job, ssh, srun), so the place may depend on
nothing but the uid, the home and the agent's name. Names that all can guess come first. Where
another user has taken those, names follow that can't be known before they are used except by a
reader of a secret in the home.
"""

import contextlib
import os
import re
import stat
from typing import Iterator, List, Optional

#: Node-local places, tried in order.
_PARENTS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - checked by `_is_ours`
#: The secret that further names are made from.
_NAMES_FROM = "~/.cache/tunnelkit/places"
_SECRET_BYTES = 32
#: A name can be seen once it was used, and taken when the node has restarted: then the next one.
_SECRET_NAMES = 16
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class NoSocketDirectory(Exception):
    """No directory on this node can hold the socket safely."""


def check_name(name: str) -> str:
    """Return `name` if it may be an agent's name; raise ValueError if not."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"bad agent name {name!r}")
    return name


def candidates() -> Iterator[str]:
    """Directories where an agent of this user may have its socket; made or not."""
    yield from _known_to_all()
    secret = _read_secret()
    if secret is not None:
        yield from _known_to_us(secret)


def make_directory() -> str:
    """Make (or find) our directory and return it. Raises NoPlace."""
    reasons: List[str] = []
    path = _first(_known_to_all(), reasons)
    if path is None:
        try:
            secret = _read_secret() or _make_secret()
        except OSError as error:
            reasons.append(f"{_NAMES_FROM}: {error.strerror}")
        else:
            path = _first(_known_to_us(secret), reasons)
    if path is None:
        raise NoSocketDirectory("; ".join(reasons))
    return path


def _first(paths: Iterator[str], reasons: List[str]) -> Optional[str]:
    """The first of these that is there, or can be made."""
    for path in paths:
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
    return None


def _known_to_all() -> Iterator[str]:
    # Set by what has found a place for this agent, in a pod (session/agent/pod_script.py).
    if "TK_PLACE" in os.environ:
        yield os.environ["TK_PLACE"]
    for parent in _PARENTS:
        yield os.path.join(parent, f"tunnelkit-{os.getuid()}")


def _known_to_us(secret: bytes) -> Iterator[str]:
    """Other names on each node: what is seen on one is no help on another."""
    # Hardly ever needed, and `attach` must not pay for it.
    import hashlib

    node = os.uname().nodename
    for number in range(_SECRET_NAMES):
        for parent in _PARENTS:
            text = f"{node} {parent} {number}".encode()
            # Short: a unix socket's path has at most 107 bytes.
            yield os.path.join(parent, "tk-" + hashlib.sha256(secret + text).hexdigest()[:16])


def _read_secret() -> Optional[bytes]:
    """The secret in the home; None if there is none, or none that is ours alone."""
    try:
        fd = os.open(os.path.expanduser(_NAMES_FROM), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        private = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o077 == 0
        secret = file.read(_SECRET_BYTES + 1) if private and status.st_uid == os.getuid() else b""
    return secret if len(secret) == _SECRET_BYTES else None


def _make_secret() -> bytes:
    """Put a secret into the home; of two processes that do, both get the same. Raises OSError."""
    import tempfile

    path = os.path.expanduser(_NAMES_FROM)
    directory = os.path.dirname(path)
    os.makedirs(directory, 0o700, exist_ok=True)
    # mkstemp makes it 0600 and follows nothing that lies there.
    fd, temporary = tempfile.mkstemp(prefix="places-", dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(os.urandom(_SECRET_BYTES))
        try:
            os.link(temporary, path)
        except OSError:
            # No links here, or there is one already: only one that is good stays.
            if _read_secret() is None:
                os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    secret = _read_secret()
    if secret is None:
        raise OSError(0, "no private file can be made there")
    return secret


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
