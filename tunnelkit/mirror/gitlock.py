"""Whether git is busy in the work tree: it holds `index.lock` while it writes there."""

from __future__ import annotations

import os
import time

_LIMIT_S = 10.0


class GitLock:
    """The lock of the repository that `root` lies in, if it lies in one."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._given_up: tuple[int, int] | None = None

    def held(self) -> bool:
        """Whether git is at work. A lock older than 10 s counts no more: it is a dead git's,
        or that of a `git commit` whose editor is open."""
        directory = git_dir(self._root)
        if directory is None:
            return False
        try:
            info = os.lstat(os.path.join(directory, "index.lock"))
        except OSError:
            return False
        found = (info.st_ino, info.st_mtime_ns)
        if abs(time.time() - info.st_mtime) > _LIMIT_S:
            self._given_up = found  # also if the clock is set back
        return found != self._given_up

    def give_up(self) -> None:
        """Don't wait for the lock that is held now."""
        directory = git_dir(self._root)
        if directory is not None:
            try:
                info = os.lstat(os.path.join(directory, "index.lock"))
            except OSError:
                return
            self._given_up = (info.st_ino, info.st_mtime_ns)


def git_dir(root: str) -> str | None:
    """The git directory of the work tree that `root` lies in; None: there is none."""
    directory = root
    while True:
        git = os.path.join(directory, ".git")
        if os.path.isdir(git):
            return git
        if os.path.isfile(git):
            return _named(directory, git)
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def _named(directory: str, file: str) -> str | None:
    """What the `.git` file of a worktree or submodule names."""
    try:
        with open(file, "rb") as stream:
            text = stream.read(4096)
    except OSError:
        return None
    key, _, value = text.partition(b":")
    return os.path.join(directory, os.fsdecode(value.strip())) if key == b"gitdir" else None
