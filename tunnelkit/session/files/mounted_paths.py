"""What a session makes of its mounts: where they may be, a working directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tunnelkit.errors import MirrorError
from tunnelkit.mount.mount_table import resolve
from tunnelkit.mount.mounts import Mounts


def check_outside(mountpoint: Path, mirrored: str) -> None:
    """Raise MirrorError if the mountpoint lies in the mirrored directory: what is mounted
    there would be sent back to the cluster."""
    where = str(resolve(mountpoint))
    if mirrored and (where == mirrored or where.startswith(mirrored.rstrip("/") + "/")):
        raise MirrorError(
            f"can't mount at {where}",
            cause=f"it lies in {mirrored}, which is mirrored",
            hint="choose a directory outside of the project, or set [mirror] enabled = false",
        )


def here_in(mounts: Mounts, header: dict[str, Any]) -> str | None:
    """The remote directory of a command that was typed in a mount; None elsewhere."""
    here = header.get("here")
    return mounts.remote_of(str(here)) if here and os.path.isabs(str(here)) else None
