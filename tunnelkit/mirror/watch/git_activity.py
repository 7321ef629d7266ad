"""Detect that git is busy in the work tree.

It holds `index.lock` while it writes there, and replaces the index.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: A lock that is held for longer belongs to a dead git, or to a `git commit` whose editor is open,
#: unless many files change meanwhile; then wait for it for up to `_MOST_S`.
_LIMIT_S = 10.0
_MOST_S = 120.0
#: For so long the location of the repository is kept: each save needs it several times.
_SAME_S = 0.02


class GitLock:
    """The lock of the repository that `root` lies in, if any."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._directory: str | None = None
        self._looked_at: float | None = None
        self._known: tuple[int, int] | None = None
        self._given_up: tuple[int, int] | None = None

    def held(self) -> bool:
        """Return True if git is at work.

        A lock that was older than 10 s when it was first seen does not count.
        """
        found = self._file("index.lock")
        if found is not None and found != self._known:
            self._known = found
            if abs(time.time() - found[1] / 1e9) > _LIMIT_S:
                self._given_up = found  # also if the clock is set back
        return found is not None and found != self._given_up

    def give_up(self) -> None:
        """Don't wait for the lock that is held now."""
        self._given_up = self._file("index.lock")

    def index(self) -> tuple[int, int] | None:
        """Return the identity of the index; it changes with each work of git."""
        return self._file("index")

    def _file(self, name: str) -> tuple[int, int] | None:
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at > _SAME_S:
            self._directory, self._looked_at = git_dir(self._root), now
        if self._directory is None:
            return None
        try:
            info = os.lstat(os.path.join(self._directory, name))
        except OSError:
            return None
        return info.st_ino, info.st_mtime_ns


class GitActivity:
    """When to wait for git, and if a scan may have seen its work half done.

    many: returns True if many files have changed since its last call.
    """

    def __init__(self, root: str, many: Callable[[], bool]) -> None:
        self._lock = GitLock(root)
        self._many = many
        #: when the wait for git began, and when it was last seen at work
        self._since: float | None = None
        self._busy_at = 0.0
        #: the index at the last full scan, and at the last scan of any kind
        self._whole: tuple[int, int] | None = None
        self._settled: tuple[int, int] | None = None

    def begin(self) -> None:
        """Ignore what git did so far."""
        self._whole = self._settled = self._lock.index()

    def at_work(self, now: float) -> bool:
        """Return True if the caller should wait for git."""
        if not self._lock.held():
            return False
        if self._since is None:
            self._since = self._busy_at = now
            self._many()
        elif now - self._busy_at > _LIMIT_S:
            if now - self._since > _MOST_S or not self._many():
                self._lock.give_up()
                return False
            self._busy_at = now
        return True

    @property
    def waited_for(self) -> bool:
        """True if `at_work` has seen git since `settled`."""
        return self._since is not None

    def index(self) -> tuple[int, int] | None:
        """Return the identity of the index."""
        return self._lock.index()

    def worked(self, *, burst: bool) -> bool:
        """Return True if the whole tree must be scanned.

        Either git was waited for; or, in a burst, it has come and gone unseen, and events of its
        work are still to come.
        """
        return self.waited_for or (burst and self._lock.index() != self._whole)

    def settled(self, *, whole: bool) -> None:
        """Note that a scan begins, of the whole tree or a part."""
        self._since = None
        self._settled = self._lock.index()
        if whole:
            self._whole = self._settled

    def began(self) -> bool:
        """Return True if git has been at work since `settled`."""
        return self._lock.held() or self._lock.index() != self._settled


def git_dir(root: str) -> str | None:
    """Return the git directory of the work tree that `root` lies in, or None."""
    directory = root
    while True:
        git = os.path.join(directory, ".git")
        if os.access(git, os.F_OK):  # the cheapest check: mostly there is none
            if os.path.isdir(git):
                return git
            if os.path.isfile(git):
                return _named(directory, git)
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def _named(directory: str, file: str) -> str | None:
    """Return the directory that the `.git` file of a worktree or submodule names."""
    try:
        with open(file, "rb") as stream:
            text = stream.read(4096)
    except OSError:
        return None
    key, _, value = text.partition(b":")
    return os.path.join(directory, os.fsdecode(value.strip())) if key == b"gitdir" else None
