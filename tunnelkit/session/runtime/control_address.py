"""Connection of a command to its session's control socket, safe from other users.

A command must not send data to another user's process, or show its password prompts. So the
owners of the directories and of the listening process are checked before the first byte.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import TYPE_CHECKING

from tunnelkit.errors import ConfigError
from tunnelkit.session.runtime.paths import is_private

if TYPE_CHECKING:
    from tunnelkit.session.runtime.paths import SessionPaths

#: struct ucred: pid, uid, gid.
_UCRED = struct.Struct("=iII")
#: sys/un.h and sys/ucred.h of macOS; struct xucred begins with a version and the uid.
_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES = 0, 1, 76
_XUCRED = struct.Struct("=II")


def reach(sock: socket.socket, paths: SessionPaths) -> None:
    """Connect a unix socket to the session.

    Raises OSError if no process listens, ConfigError if another user's process could be listening.
    """
    check_place(paths)
    sock.connect(str(paths.control_socket))
    owner = peer_uid(sock)
    if owner != os.getuid():
        raise ConfigError(
            f"a process of another user (uid {owner}) listens at {paths.control_socket}",
            hint="nothing was sent; set TK_RUNTIME_DIR to a private directory",
        )


def check_place(paths: SessionPaths) -> None:
    """Raise ConfigError if another user could have created files in the session's directory."""
    for path in (paths.runtime.parent, paths.runtime):
        if os.path.lexists(path) and not is_private(path):
            raise ConfigError(
                f"{path} is not a directory of yours alone",
                cause="another user could pretend to be your session there",
                hint=f"chmod 700 {path} if it is yours, else set TK_RUNTIME_DIR to a private"
                " directory",
            )


def peer_uid(sock: socket.socket) -> int | None:
    """Return the uid of the process that listens at a unix socket's other end.

    None if the kernel does not report it.
    """
    try:
        if sys.platform == "darwin":
            raw = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
            return int(_XUCRED.unpack_from(raw)[1])
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return int(_UCRED.unpack(raw)[1])
    except (OSError, struct.error):
        return None
