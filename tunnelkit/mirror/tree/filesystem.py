"""Tell local from network file systems: scanning a local disk never waits for a network."""

from __future__ import annotations

import os
from pathlib import Path

from tunnelkit.mount_points import TABLE, kind_of, mount_points, slashed

#: Linux file systems that are always local.
_LOCAL = frozenset(
    b"bcachefs btrfs exfat ext2 ext3 ext4 f2fs overlay ramfs tmpfs vfat xfs zfs".split()
)


def is_local(directory: str, table: Path = TABLE) -> bool:
    """Return True if a real path is on a local disk, by the mount table.

    An unknown file system counts as remote. Reads nothing but the table.
    """
    return os.fsencode(kind_of(directory, table)) in _LOCAL


def remote_mounts(directory: str, table: Path = TABLE) -> list[str]:
    """Return the mount points below a real path that may be remote, as relative paths."""
    above = slashed(os.fsencode(directory))
    try:
        mounts = [(slashed(mount.path), mount.kind) for mount in mount_points(table)]
    except OSError:
        return []
    kinds = {place: kind for place, kind in mounts if place.startswith(above)}
    kinds.pop(above, None)
    return [
        os.fsdecode(place[len(above) :].rstrip(b"/"))
        for place, kind in kinds.items()
        if kind not in _LOCAL
    ]
