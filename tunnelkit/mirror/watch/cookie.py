"""Cookie files (a term of Watchman): written only to see their event.

Once the event of a cookie has arrived, all earlier events have arrived, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from tunnelkit.mirror.tree.ignore import COOKIE_PREFIX


def is_cookie(path: str) -> bool:
    """Return True if the last component of a path is a cookie's name."""
    return path.rpartition("/")[2].startswith(COOKIE_PREFIX)


def place(root: str) -> str:
    """Return a new path for a cookie.

    It is in `.git` if that is a directory: git leaves unknown files alone there, and editors do not
    show them.
    """
    name = f"{COOKIE_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    return os.path.join(_usable(root)[0], name)


def directories(root: str) -> tuple[str, ...]:
    """Return the directories for cookies, also those that do not exist."""
    return os.path.join(root, ".git"), root


def write(path: str) -> None:
    """Create an empty cookie. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))


def remove(path: str) -> None:
    """Remove a cookie, if it exists."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def sweep(root: str) -> None:
    """Remove the cookies that a killed session left.

    A cookie of a living session may be removed, too: its event was sent when it was made.
    """
    for directory in _usable(root):
        with contextlib.suppress(OSError), os.scandir(directory) as found:
            for entry in found:
                if is_cookie(entry.name):
                    remove(entry.path)


def _usable(root: str) -> list[str]:
    git, _ = directories(root)
    try:
        inside = stat.S_ISDIR(os.lstat(git).st_mode)  # no watch follows a symlink
    except OSError:
        inside = False
    return [git, root] if inside and os.access(git, os.W_OK | os.X_OK) else [root]
