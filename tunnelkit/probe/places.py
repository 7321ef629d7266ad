"""The file systems of a job's processes: whether they answer, and whether a log grows."""

import os
from functools import partial
from typing import TYPE_CHECKING, Dict, Iterable, List, NamedTuple, Optional, Set

from tunnelkit.probe import proc
from tunnelkit.probe.child import Child

if TYPE_CHECKING:
    from tunnelkit.probe.nfs import Operations

_LIMIT_S = 3.0
_MOST_MOUNTS = 12
_FILES_A_PROCESS = 128
_MOST_FILES = 1024
_UNREAL = frozenset(
    ("proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "cgroup", "cgroup2", "mqueue", "debugfs",
     "tracefs", "securityfs", "pstore", "bpf", "configfs", "hugetlbfs", "binfmt_misc", "overlay",
     "squashfs", "ramfs", "nsfs")
)  # fmt: skip

#: They have a size, and no server that may not answer.
_IN_MEMORY = frozenset(("tmpfs", "ramfs"))


class Mount(NamedTuple):
    """A mounted file system. device: `MAJOR:MINOR`."""

    place: str
    kind: str
    source: str
    device: str


class Files(NamedTuple):
    """mounts: by process. logs: regular files that stdout or stderr go to. written: mounts where
    a file is open for writing."""

    mounts: Dict[int, Set[str]]
    logs: Set[str]
    written: Set[str]


def mounts() -> List[Mount]:
    """Return all mounts, the longest place first."""
    found = []
    for line in proc.whole_text_of("/proc/self/mountinfo", 1 << 20).splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) >= 5 and len(kinds) >= 2:
            found.append(Mount(proc.proc_path(fields[4]), kinds[0], kinds[1], fields[2]))
    return sorted(found, key=lambda one: -len(one.place))


def mount_of(path: str, known: List[Mount]) -> Optional[Mount]:
    """Return the mount that holds a path, by its name alone."""
    return next(
        (one for one in known if path == one.place or path.startswith(one.place.rstrip("/") + "/")),
        None,
    )


def files_of(pids: Iterable[int], known: List[Mount]) -> Files:
    """Return where these processes have files open, and their directory."""
    by_process: Dict[int, Set[str]] = {}
    logs: Set[str] = set()
    written: Set[str] = set()
    looked = 0
    places: Dict[str, str] = {}

    def place_of(path: str) -> str:
        above = os.path.dirname(path)
        if above not in places:
            mount = mount_of(path, known)
            places[above] = "" if mount is None else mount.place
        return places[above]

    for pid in pids:
        paths = [proc.link_of(f"/proc/{pid}/cwd") + "/."]
        for fd in list(proc.numbers_in(f"/proc/{pid}/fd"))[:_FILES_A_PROCESS]:
            looked += 1
            if looked > _MOST_FILES:
                break
            path = proc.link_of(f"/proc/{pid}/fd/{fd}")
            if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/sys/")):
                paths.append(path)
                if _is_written(f"/proc/{pid}/fd/{fd}"):
                    written.add(place_of(path))
                if fd in (1, 2):
                    logs.add(path)
        by_process[pid] = {place_of(path) for path in paths if path.startswith("/")} - {""}
    return Files(by_process, set(sorted(logs)[:16]), written)


def kind_of_stdin(pid: int) -> str:
    """Return `terminal` or `pipe` if a process may read lines from one; else ""."""
    target = proc.link_of(f"/proc/{pid}/fd/0")
    if target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return "terminal"
    return "pipe" if target.startswith("pipe:") else ""


class PlaceWatch:
    """Watches the file systems of a job for a while."""

    def __init__(self, pids: Iterable[int]) -> None:
        known = mounts()
        self._files = files_of(pids, known)
        used = {place for places in self._files.mounts.values() for place in places}
        self._mounts = [one for one in known if one.place in used][:_MOST_MOUNTS]
        # A place that is mounted over comes twice: the last one is on top.
        self._mounts = list({one.place: one for one in self._mounts}.values())
        self._children = {
            one.place: Child(partial(_statvfs, one.place))
            for one in self._mounts
            if one.kind not in _UNREAL
        }
        self._nfs = _nfs_counters(self._mounts)
        self._device_ops = {one.place: _device_ops(one.device) for one in self._mounts}
        self._log_child = Child(lambda: _sizes(self._files.logs))

    def result(self, seconds: float) -> Dict[str, object]:
        """Return what each file system did meanwhile, and whether a log has grown."""
        after = _nfs_counters(self._mounts)
        sizes_before = self._log_child.answer(_LIMIT_S)
        sizes = Child(lambda: _sizes(self._files.logs)).answer(_LIMIT_S)
        return {
            "places": [self._place(one, after, seconds) for one in self._mounts],
            "log_files": len(self._files.logs),
            "log_grew": None
            if not self._files.logs or sizes is None or sizes_before is None
            else sizes != sizes_before,
        }

    def of(self, pid: int) -> List[str]:
        """Return the mounts where a process has files."""
        return sorted(self._files.mounts.get(pid, ()))[:_MOST_MOUNTS]

    def _place(
        self, one: Mount, after: Dict[str, Dict[str, "Operations"]], seconds: float
    ) -> Dict[str, object]:
        child = self._children.get(one.place)
        answer = child.answer(_LIMIT_S) if child is not None else {}
        found: Dict[str, object] = {
            "path": one.place,
            "kind": one.kind,
            "source": one.source[:200],
            "answers": answer is not None,
            "written": one.place in self._files.written,
        }
        if child is None and one.kind in _IN_MEMORY:
            answer = _statvfs(one.place)
        if isinstance(answer, dict):
            found.update(answer)
        if one.place in after:
            from tunnelkit.probe import nfs

            traffic = nfs.differences(self._nfs.get(one.place, {}), after[one.place], seconds)
            found.update({"nfs": traffic, "ops": traffic["ops"]})
        elif one.kind not in _UNREAL:
            ops, was = _device_ops(one.device), self._device_ops[one.place]
            found["ops"] = ops - was if ops is not None and was is not None else None
        return found


def _nfs_counters(mounts: Iterable[Mount]) -> Dict[str, Dict[str, "Operations"]]:
    """Return the operations of each mount; without an NFS of the job nothing is imported."""
    if not any(one.kind.startswith("nfs") for one in mounts):
        return {}
    from tunnelkit.probe import nfs

    return nfs.read()


def _statvfs(path: str) -> Dict[str, object]:
    try:
        found = os.statvfs(path)
    except OSError as error:
        return {"error": error.strerror or str(error.errno)}
    return {
        "size_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
        "files": found.f_files,
        "files_free": found.f_favail,
    }


def _is_written(link: str) -> bool:
    """True if a descriptor is open for writing: its link in /proc says so."""
    try:
        return bool(os.lstat(link).st_mode & 0o200)
    except OSError:
        return False


def _sizes(paths: Iterable[str]) -> Dict[str, float]:
    found = {}
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            continue
        found[path] = seen.st_size + seen.st_mtime
    return found


def _device_ops(device: str) -> Optional[int]:
    """Operations that a disk has completed."""
    words = proc.text_of(f"/sys/dev/block/{device}/stat", 512).split()
    return int(words[0]) + int(words[4]) if len(words) > 4 else None
