"""The file of a black box: its name, its directory, and how it is written.

Each write makes a new file and renames it over the old one. So a reader, and a `kill -9` in the
middle, meet either the old record or the new one, whole. On NFS the data is with the server once
the file is closed, which is before the rename; ext4 and XFS write a file that replaces another
before the rename. So a node that loses power costs what came after the last write.
"""

import os
import re
import stat
import time
from typing import List, Mapping, Optional, Tuple

_KEEP_S = 30 * 24 * 3600.0
_KEEP_FILES = 200
_OURS = re.compile(r"[0-9][0-9_]*\.[0-9]+(\.[A-Za-z0-9_-]+)?\.jsonl")


class BoxFile:
    """One box's file. directory: 0700, this user's."""

    def __init__(self, directory: str, name: str) -> None:
        self.name = name
        self._path = os.path.join(directory, name)
        self._next = os.path.join(directory, f".{name}.new")

    def write(self, data: bytes, *, lasting: bool) -> bool:
        """Replace the content; False if that failed. lasting: wait until the disk has it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self._next, flags, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                if lasting:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(self._next, self._path)
        except OSError:
            return False
        return True


def open_directory(path: str) -> bool:
    """Make the directory of the boxes if it is not there; False if others could use it."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        if found.st_mode & 0o077:
            os.chmod(path, 0o700)
    except OSError:
        return False
    return True


def job_name(environ: Mapping[str, str]) -> str:
    """Return the job's id as file names have it: "4711", of an array's job "4711_3"; else ""."""
    array = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array[0] and array[1]:
        text = "_".join(one for one in array if one)
    else:
        text = environ.get("SLURM_JOB_ID") or environ.get("PBS_JOBID", "").partition(".")[0]
    return re.sub("[^0-9]+", "_", text).strip("_")


def attempt(environ: Mapping[str, str], directory: str, job: str) -> int:
    """Return how often this job has started before. PBS does not say: by the files there."""
    restarts = environ.get("SLURM_RESTART_COUNT", "")
    if re.fullmatch("[0-9]{1,4}", restarts) or environ.get("SLURM_JOB_ID"):
        return int(restarts or 0)
    for number in range(1000):
        if not os.path.exists(os.path.join(directory, f"{job}.{number}.jsonl")):
            return number
    return 999


def file_name(job: str, number: int, node: str = "") -> str:
    """Return a box's name. node: of a job's further nodes."""
    place = "." + re.sub("[^A-Za-z0-9_-]+", "-", node.partition(".")[0]) if node else ""
    return f"{job}.{number}{place}.jsonl"


def remove_old(directory: str, now_s: Optional[float] = None) -> None:
    """Remove boxes that are 30 days old, and the oldest beyond 200; only files of boxes."""
    now = time.time() if now_s is None else now_s
    found: List[Tuple[float, str]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name[1:-4] if entry.name.endswith(".new") else entry.name
                if _OURS.fullmatch(name) and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except OSError:
        return
    found.sort(reverse=True)
    for at, (written, path) in enumerate(found):
        if at >= _KEEP_FILES - 1 or now - written > _KEEP_S:
            try:
                os.unlink(path)
            except OSError:
                pass
