"""The interface of a pass to its caller: changes that come while it runs, and reports."""

from __future__ import annotations

from typing import Protocol

from tunnelkit.mirror.context import PassResult
from tunnelkit.mirror.watch.coalescer import DirtyPaths


class PassCaller(Protocol):
    """The caller of a pass (push_worker.py)."""

    async def git_began(self) -> DirtyPaths | None:
        """Return what must be scanned once more, because git was at work during a scan."""

    def scanned(self) -> None:
        """Note a scan, which may have found directories that were ignored until now."""

    async def changed(self) -> None:
        """Return once there are changes that no pass has taken."""

    async def take(self) -> DirtyPaths | None:
        """Take these changes once the save is over. None: git is at work; ask again."""

    def pending(self, paths: frozenset[str]) -> None:
        """Note the paths to send or delete, before that begins."""

    def sent(self, result: PassResult, duration_s: float) -> None:
        """Report a part of a pass: a small one within a big one, or one before an error."""
