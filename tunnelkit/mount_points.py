"""The mounts of this computer, by the kernel's table. Nothing here touches a mount."""

from __future__ import annotations

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
