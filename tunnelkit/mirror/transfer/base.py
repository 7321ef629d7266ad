"""The interface of a transfer: files sent and fetched by name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: Exit codes of rsync for a file that could not be written (a full disk), "some files were not
#: transferred" and "some vanished": see `differing`.
PARTIAL = frozenset({11, 23, 24})


@dataclass(frozen=True, slots=True)
class TransferResult:
    """How a transfer ended. stdout: where files that gave way are told, a line of rsync's
    `%i %n` for each. error_text: what failed, if `partial`. came: what `fetch` has put in
    place."""

    exit_code: int
    stdout: bytes
    error_text: str
    came: frozenset[str] = frozenset()

    @property
    def partial(self) -> bool:
        return self.exit_code in PARTIAL


@dataclass(frozen=True, slots=True)
class FetchRule:
    """What `fetch` does with what is on the laptop already. newer_stays: a local file that is
    newer, or of the same size and time, is kept. safe_links: symlinks that lead out of the tree
    don't come. partial_dir: where what has arrived of a file that broke off may wait for the
    next call. backup_dir: where former content goes. stall_s: so long without a byte, and the
    link is taken for dead."""

    newer_stays: bool = False
    safe_links: bool = False
    partial_dir: Path | None = None
    backup_dir: Path | None = None
    stall_s: int = 60


class Transfer(Protocol):
    """Sends and brings files by name; never deletes. Paths are relative to both roots. A
    reader at either end sees the old content of a file or the new one."""

    async def push(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        size_bytes: int,
        on_output: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """Send these paths whatever their size and times there. on_output: told how far it
        is, in words of `rsync --info=progress2`. Raises ConnectionFailed (transient) if the
        link failed, MirrorError, MissingProgram or TimeoutExpired."""
        ...

    async def adopt(
        self, paths: Collection[str], remote_root: str, *, backup_dir: str, size_bytes: int
    ) -> TransferResult:
        """Send these paths where something that tk did not write is already there: equal
        files stay, others are moved to `backup_dir` (absolute) first. stdout itemizes."""
        ...

    async def fetch(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        rule: FetchRule,
        size_bytes: int,
        listen: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """Bring these paths to the laptop. size_bytes: what was listed of them; far more ends
        it. listen: told how far it is, as `push` does. Raises as `push`, and MirrorError for a
        far side that sends what was not asked for."""
        ...

    async def differing(
        self, paths: Collection[str], remote_root: str, *, size_bytes: int
    ) -> set[str]:
        """Which of these paths are not the same at both ends, contents read."""
        ...
