"""Tell local from network file systems: scanning a local disk never waits for a network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tunnelkit.mount_points import TABLE, mount_points

#: Linux file systems that are always local.
_LOCAL = frozenset(
    b"bcachefs btrfs exfat ext2 ext3 ext4 f2fs overlay ramfs tmpfs vfat xfs zfs".split()
)


def is_local(directory: str, table: Path = TABLE) -> bool:
    """Return True if a real path is on a local disk, by the mount table.

    An unknown file system counts as remote. Reads nothing but the table.
    """
    return os.fsencode(kind_of(directory, table)) in _LOCAL


def kind_of(directory: str, table: Path = TABLE) -> str:
    """Return the file system type of a real path ("ext4"), or "" if it is unknown."""
    wanted = _slashed(os.fsencode(directory))
    found, kind = b"", b""
    for place, its_kind in _mounts(table):
        # The last mount at one place hides the others.
        if wanted.startswith(place) and len(place) >= len(found):
            found, kind = place, its_kind
    return os.fsdecode(kind)


def remote_mounts(directory: str, table: Path = TABLE) -> list[str]:
    """Return the mount points below a real path that may be remote, as relative paths."""
    above = _slashed(os.fsencode(directory))
    kinds = {place: kind for place, kind in _mounts(table) if place.startswith(above)}
    kinds.pop(above, None)
    return [
        os.fsdecode(place[len(above) :].rstrip(b"/"))
        for place, kind in kinds.items()
        if kind not in _LOCAL
    ]


def _mounts(table: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the mount point, with a slash at its end, and the file system type of each mount."""
    try:
        for mount in mount_points(table):
            yield _slashed(mount.path), mount.kind
    except OSError:
        return


def _slashed(path: bytes) -> bytes:
    return path.rstrip(b"/") + b"/"
