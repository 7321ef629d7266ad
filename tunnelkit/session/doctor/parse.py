"""Parsers of programs' output on both sides. No I/O; no input raises an error."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

#: File systems shared with other machines: their locks and times are not local.
NETWORK_KINDS = frozenset(
    (
        *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "fhgfs", "ceph", "cephfs", "afs", "panfs"),
        *("pvfs2", "orangefs", "glusterfs", "wekafs", "cifs", "smb2", "smbfs"),
        *("fuse.sshfs", "fuse.glusterfs"),
    )
)
_SSH = re.compile(r"\bOpenSSH(?:_for_Windows)?_(\d+)\.(\d+)(\S*)")
_DF = re.compile(r"^(.*?)\s+(\d+)\s+(\d+)\s+(-?\d+)\s+(?:\d+%|-)\s+(/.*)$")
_NUMBER = re.compile(r"\d+")
_PYTHON = re.compile(r"^tk-python (\d{1,3})\.(\d{1,3})\.(\d{1,4}) (\S.*)$", re.MULTILINE)
_EPOCH = re.compile(r"^tk-date (\d{1,12})(\.\d{1,12})?", re.MULTILINE)


def ssh_version(text: str) -> tuple[int, int] | None:
    """Return the version in the output of `ssh -V`; None if it is not OpenSSH."""
    found = _SSH.search(text)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class Space:
    """A file system in the output of `df -Pk`."""

    total_bytes: int
    free_bytes: int
    mountpoint: str


def df(text: str) -> Space | None:
    """Return the last file system in the output of `df -Pk`, or None."""
    for line in reversed(text.splitlines()):
        found = _DF.match(line.strip())
        if found:
            return Space(int(found[2]) * 1024, max(0, int(found[4])) * 1024, found[5])
    return None


@dataclass(frozen=True, slots=True)
class Quota:
    """One row of `quota` or `lfs quota`. limit_bytes: the hard one, else the soft one."""

    filesystem: str
    used_bytes: int
    limit_bytes: int

    @property
    def used_part(self) -> float:
        """The used part of the limit; 1.0 and more: full."""
        return self.used_bytes / self.limit_bytes


def quotas(text: str) -> list[Quota]:
    """Parse the rows with a limit. Numbers are blocks of 1 KiB; a `*` marks an excess."""
    found: list[Quota] = []
    name = ""
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) == 1:
            name = words[0]  # a long name has its numbers on the next line
            continue
        numbers = [word.rstrip("*") for word in words]
        if not _NUMBER.fullmatch(numbers[0]):
            name, numbers = words[0], numbers[1:]
        if len(numbers) < 3 or not all(_NUMBER.fullmatch(one) for one in numbers[:3]):
            continue
        used, soft, hard = (int(one) for one in numbers[:3])
        if hard or soft:
            found.append(Quota(name, used * 1024, (hard or soft) * 1024))
    return found


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter on the login host."""

    path: str
    version: tuple[int, int, int]

    @property
    def text(self) -> str:
        """Return the version as text: "3.11.7"."""
        return "{}.{}.{}".format(*self.version)


def pythons(text: str) -> list[Python]:
    """Parse the interpreters in the output, each once, in their order."""
    found: dict[str, Python] = {}
    for major, minor, micro, path in _PYTHON.findall(text):
        found.setdefault(path, Python(path.strip(), (int(major), int(minor), int(micro))))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Clock:
    """The lead of a remote clock; the true value is within `uncertain_s` of it."""

    ahead_s: float
    uncertain_s: float

    @property
    def surely_off_s(self) -> float:
        """The least possible difference, in seconds."""
        return max(0.0, abs(self.ahead_s) - self.uncertain_s)


def clock(text: str, before_s: float, after_s: float) -> Clock | None:
    """Return the remote clock from its answer, or None if it holds no time.

    before_s, after_s: local Unix times of question and answer."""
    found = _EPOCH.search(text)
    if not found or not (math.isfinite(before_s) and math.isfinite(after_s)):
        return None
    # Without a fraction (a `date` that has no %N) it is a whole second, cut off.
    far = float(found[1] + found[2]) if found[2] else int(found[1]) + 0.5
    rounded = 0.0 if found[2] else 0.5
    return Clock(far - (before_s + after_s) / 2, abs(after_s - before_s) / 2 + rounded)


def noise(stdout: str, mark: str) -> str:
    """Return the login shell's output around the line that begins with `mark`, as one line."""
    lines = [line.strip() for line in stdout.splitlines()]
    return " ".join(line for line in lines if line and line.split(" ", 1)[0] != mark)


def tagged(text: str, tag: str) -> str:
    """Return the lines that begin with `tag` and a space, without these."""
    prefix = tag + " "
    return "\n".join(
        line.removeprefix(prefix) for line in text.splitlines() if line.startswith(prefix)
    )


def is_network(kind: str) -> bool:
    """True if a file system of this kind (`stat -f -c %T`) is shared by machines."""
    return kind.strip().lower() in NETWORK_KINDS


def shorten(text: str, limit: int = 60) -> str:
    """Return a text as one line of limited length."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
