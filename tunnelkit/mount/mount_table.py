"""The sshfs mounts of this computer: the kernel's table, and tk's records of its own mounts.

A record is a private directory per mountpoint: `mount.json`, the pids of sshfs and of its
ssh, the script that is its ssh, its log. A dead mount blocks every process that touches it, so no
function here does stat() on a mountpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from tunnelkit.mount_points import mount_points

_USER = re.compile(rb"(?:^|,)user_id=(\d+)")
_RECORDS = "sshfs"
_FACTS = "mount.json"


@dataclass(frozen=True, slots=True)
class MountRecord:
    """One mount that tk made.

    mountpoint: absolute, its parents without symlinks. host, remote_dir: as requested.
    remote_root: the remote directory, absolute. owner: id of the session."""

    mountpoint: str
    host: str
    remote_dir: str
    remote_root: str
    owner: str

    def dump(self, directory: Path) -> None:
        """Write the record into its directory."""
        (directory / _FACTS).write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(directory: Path) -> MountRecord | None:
        """Return the record in this directory; None if there is none."""
        try:
            data = json.loads((directory / _FACTS).read_text())
            names = ("mountpoint", "host", "remote_dir", "remote_root", "owner")
            return MountRecord(*(str(data[name]) for name in names))
        except (OSError, ValueError, TypeError, KeyError):
            return None


def resolve(mountpoint: Path) -> Path:
    """Return the absolute mountpoint with symlinks above it resolved; it is not touched."""
    absolute = Path(os.path.abspath(mountpoint))
    return absolute.parent.resolve() / absolute.name


def record_dir(where: Path, state_dir: Path) -> Path:
    """Return the directory of a resolved mountpoint's record."""
    name = hashlib.sha256(os.fsencode(where)).hexdigest()[:16]
    return state_dir / _RECORDS / name


def records(state_dir: Path) -> list[MountRecord]:
    """Return the mounts that tk made and did not unmount, by mountpoint.

    A mount may be gone by now."""
    base = state_dir / _RECORDS
    try:
        found = [MountRecord.load(base / name) for name in os.listdir(base)]
    except OSError:
        return []
    return sorted((one for one in found if one is not None), key=lambda one: one.mountpoint)


def mount_user(where: Path) -> int | None:
    """Return the uid that mounted an sshfs exactly at this resolved path, or None.

    Reads the mount table; never blocks."""
    user = None
    try:
        for mount in mount_points():
            if mount.path == os.fsencode(where):
                # The last one is the mount on top.
                match = _USER.search(mount.options)
                is_sshfs = mount.kind == b"fuse.sshfs" and match is not None
                user = int(match[1]) if is_sshfs and match is not None else None
    except OSError:  # not Linux: the owner is not known, and umount(8) refuses mounts of others
        return os.getuid() if os.path.ismount(where) else None
    return user


def is_mounted(mountpoint: Path) -> bool:
    """True if an sshfs is mounted exactly there. Never blocks."""
    return mount_user(resolve(mountpoint)) is not None


def sshfs_pids(where: Path, record: Path) -> set[int]:
    """Return the pids of this user's sshfs for this resolved mountpoint.

    The recorded one and, where there is /proc, any other: a record may be lost."""
    pids = {pid for pid in (read_pid(record / "pid"),) if pid is not None}
    with contextlib.suppress(OSError):
        pids |= {int(name) for name in os.listdir("/proc") if name.isdigit()}
    return {pid for pid in pids if _is_sshfs(pid, where)}


def ssh_pid(record: Path) -> int | None:
    """Return the pid of the ssh that carries a mount, while it runs."""
    pid = read_pid(record / "ssh.pid")
    words = _words(pid) if pid is not None else None
    return pid if words and b"sftp" in words else None


def read_pid(file: Path) -> int | None:
    """Return the pid that a file holds; None if there is no such file or no number in it."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _is_sshfs(pid: int, where: Path) -> bool:
    words = _words(pid)
    return (
        bool(words)
        and words is not None
        and b"sshfs" in os.path.basename(words[0])
        and os.fsencode(where) in words
    )


def _words(pid: int) -> list[bytes] | None:
    """Return the command line of this user's process; None if there is no such process."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return None
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return None
    except OSError:
        return None
    return _words_by_ps(pid)


def _words_by_ps(pid: int) -> list[bytes] | None:
    import subprocess  # only where there is no /proc

    # The user is compared here: ps takes a process that any of its selectors names.
    done = subprocess.run(
        ["ps", "-ww", "-o", "uid=,command=", "-p", str(pid)], capture_output=True, check=False
    )
    uid, *words = done.stdout.split() or [b""]
    return words if uid == b"%d" % os.getuid() and words else None
