"""The directory of a link's sockets: nobody else's, and of a path that a socket can have."""

from __future__ import annotations

import os
from pathlib import Path

from tunnelkit.errors import ConfigError

#: A unix socket's path holds 104 bytes on macOS (108 on Linux), and ssh first makes
#: the control socket under a name that is 17 bytes longer.
MAX_CONTROL_PATH_BYTES = 86


def private_directory(directory: Path, *, longest: Path, owner: str) -> None:
    """Make it, if need be. longest: the socket in it with the longest name. owner: whose
    sockets they are, for the error. Raises ConfigError unless it is ours alone and short enough.
    """
    size = len(os.fsencode(longest))
    if size > MAX_CONTROL_PATH_BYTES:
        raise ConfigError(
            f"the directory for {owner}'s sockets has too long a path: {directory}",
            cause=f"{size} bytes with the socket, of {MAX_CONTROL_PATH_BYTES} at most",
            hint="set TK_RUNTIME_DIR (without a session: TMPDIR) to a short path, such as /tmp/me",
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or directory.is_symlink():
        raise ConfigError(
            f"{directory} is open to other users",
            cause="it must be a directory of yours with mode 0700",
            hint=f"chmod 700 {directory}, or remove it",
        )
