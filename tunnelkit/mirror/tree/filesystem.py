"""Whether a directory is on a disk of this machine, where a look never waits for a network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
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
    return os.fsencode(kind_of(directory, table)) in _LOCAL


def kind_of(directory: str, table: Path = _TABLE) -> str:
    """The file system of a real path, as the mount table calls it ("ext4"); "": not known."""
    wanted = _slashed(os.fsencode(directory))
    found, kind = b"", b""
    for place, its_kind in _mounts(table):
        # The last of those at one place is what is seen there.
        if wanted.startswith(place) and len(place) >= len(found):
            found, kind = place, its_kind
    return os.fsdecode(kind)


def remote_mounts(directory: str, table: Path = _TABLE) -> list[str]:
    """Where something is mounted below a real path that is not sure to be here: relative paths."""
    above = _slashed(os.fsencode(directory))
    kinds = {place: kind for place, kind in _mounts(table) if place.startswith(above)}
    kinds.pop(above, None)
    return [
        os.fsdecode(place[len(above) :].rstrip(b"/"))
        for place, kind in kinds.items()
        if kind not in _LOCAL
    ]


def _mounts(table: Path) -> Iterator[tuple[bytes, bytes]]:
    """Each mount's place, which ends in a slash, and the kind of its file system."""
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        fields, _, rest = line.partition(b" - ")
        words = fields.split(b" ")
        if len(words) >= 5:
            place = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), words[4])
            yield _slashed(place), rest.split(b" ", 1)[0]


def _slashed(path: bytes) -> bytes:
    return path.rstrip(b"/") + b"/"
