"""Paths of mounts: allowed mountpoints, and working directories inside a mount."""

from __future__ import annotations

import os
from pathlib import Path

from tunnelkit.errors import MirrorError
from tunnelkit.mount.mount_table import resolve
from tunnelkit.mount.mounts import Mounts


def check_outside(mountpoint: Path, mirrored: str) -> None:
    """Raise MirrorError if the mountpoint lies in a mirrored directory.

    The mounted files would be sent back to the cluster.
    """
    where = str(resolve(mountpoint))
    if mirrored and (where == mirrored or where.startswith(mirrored.rstrip("/") + "/")):
        raise MirrorError(
            f"can't mount at {where}",
            cause=f"it lies in {mirrored}, which is mirrored",
            hint="choose a directory outside of the project, or set [mirror] enabled = false",
        )


def here_in(mounts: Mounts, here: str | None) -> str | None:
    """Return the remote directory of a command's directory inside a mount; else None."""
    return mounts.remote_of(here) if here and os.path.isabs(here) else None
