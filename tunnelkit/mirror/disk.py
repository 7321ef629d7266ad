"""Whether a directory is on a disk of this machine, where a look never waits for a network."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OCTAL = re.compile(rb"\\([0-7]{3})")
#: Of the file systems of Linux, those that are sure to be here.
_LOCAL = frozenset(
    b"bcachefs btrfs exfat ext2 ext3 ext4 f2fs overlay ramfs tmpfs vfat xfs zfs".split()
)
_TABLE = Path("/proc/self/mountinfo")


def is_local(directory: str, table: Path = _TABLE) -> bool:
    """Of a real path, by the mount table; what it does not tell is taken for remote. Touches
    nothing but the table."""
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return False
    wanted = os.fsencode(directory).rstrip(b"/") + b"/"
    found, kind = b"", b""
    for line in lines:
        fields, _, rest = line.partition(b" - ")
        words = fields.split(b" ")
        if len(words) < 5:
            continue
        place = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), words[4]).rstrip(b"/") + b"/"
        # The last of those at one place is what is seen there.
        if wanted.startswith(place) and len(place) >= len(found):
            found, kind = place, rest.split(b" ", 1)[0]
    return kind in _LOCAL
