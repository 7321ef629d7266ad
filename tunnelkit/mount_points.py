"""The mounts of this computer, by the kernel's table. Nothing here touches a mount."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Linux only.
TABLE = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountPoint:
    """One mount. path: absolute. kind: `ext4`. options: of the file system, by commas."""

    path: bytes
    kind: bytes
    options: bytes


def mount_points(table: Path = TABLE) -> Iterator[MountPoint]:
    """Yield all mounts; of several at one place, the last hides the others.

    Raises OSError where there is no such table. Lines that can't be read are left out.
    See proc_pid_mountinfo(5).
    """
    for line in table.read_bytes().splitlines():
        fields, _, rest = line.partition(b" - ")
        words, (kind, _, tail) = fields.split(b" "), rest.partition(b" ")
        if len(words) >= 5:
            path = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), words[4])
            yield MountPoint(path, kind, tail.rpartition(b" ")[2])


def kind_of(path: str, table: Path = TABLE) -> str:
    """Return the file system type of a path ("ext4"), as its text says; "" if it is unknown."""
    wanted = slashed(os.fsencode(path))
    found, kind = b"", b""
    try:
        for mount in mount_points(table):
            place = slashed(mount.path)
            # The last mount at one place hides the others.
            if wanted.startswith(place) and len(place) >= len(found):
                found, kind = place, mount.kind
    except OSError:
        return ""
    return os.fsdecode(kind)


def slashed(path: bytes) -> bytes:
    """Return a directory with one slash at its end, so that a prefix is a directory above."""
    return path.rstrip(b"/") + b"/"
