"""Whether git is busy in the work tree: it holds `index.lock` while it writes there, and the
index is another one afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: A lock that is held for longer is a dead git's, or that of a `git commit` whose editor is open,
#: unless many files change meanwhile; then it is waited for up to the second.
_LIMIT_S = 10.0
_MOST_S = 120.0
#: For so long a repository is where it was found: each save asks several times.
_SAME_S = 0.02


class GitLock:
    """The lock of the repository that `root` lies in, if it lies in one."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._directory: str | None = None
        self._looked_at: float | None = None
        self._known: tuple[int, int] | None = None
        self._given_up: tuple[int, int] | None = None

    def held(self) -> bool:
        """Whether git is at work. A lock that was older than 10 s when it was first seen does
        not count."""
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
        """Which index there is: another one after each work of git's."""
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
    """When to wait for git, and whether a look at the tree can have met it in the middle.

    many: whether many files have changed since that was asked last.
    """

    def __init__(self, root: str, many: Callable[[], bool]) -> None:
        self._lock = GitLock(root)
        self._many = many
        #: since when it is waited for, and when it was last seen to work
        self._since: float | None = None
        self._busy_at = 0.0
        #: the index when the whole tree was looked at last, and when anything was
        self._whole: tuple[int, int] | None = None
        self._settled: tuple[int, int] | None = None

    def begin(self) -> None:
        """What it did so far does not count."""
        self._whole = self._settled = self._lock.index()

    def at_work(self, now: float) -> bool:
        """Whether to wait for it."""
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
        """Whether `at_work` has seen it since `settled`."""
        return self._since is not None

    def index(self) -> tuple[int, int] | None:
        """Which index there is."""
        return self._lock.index()

    def worked(self, *, burst: bool) -> bool:
        """Whether the whole tree has to be looked at: it was waited for; or, in a burst, it has
        come and gone unseen, and events of what it did are still to come."""
        return self.waited_for or (burst and self._lock.index() != self._whole)

    def settled(self, *, whole: bool) -> None:
        """A look begins, at the whole tree or a part."""
        self._since = None
        self._settled = self._lock.index()
        if whole:
            self._whole = self._settled

    def began(self) -> bool:
        """Whether it has been at work since `settled`."""
        return self._lock.held() or self._lock.index() != self._settled


def git_dir(root: str) -> str | None:
    """The git directory of the work tree that `root` lies in; None: there is none."""
    directory = root
    while True:
        git = os.path.join(directory, ".git")
        if os.access(git, os.F_OK):  # the cheapest question: mostly there is none
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
