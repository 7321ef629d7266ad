"""The interface of a transfer: files sent and fetched by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tunnelkit.mirror.tree.scanner import Entry

#: Exit codes of rsync for a file that could not be written (a full disk), "some files were not
#: transferred" and "some vanished": see `differing`.
PARTIAL = frozenset({11, 23, 24})


@dataclass(frozen=True, slots=True)
class TransferResult:
    """The result of a transfer.

    stdout: has a line of rsync's `%i %n` for each file that was replaced.
    error_text: what failed, if `partial`.
    came: the files that `fetch` has put in place. failed: those that came and could not be.
    kept: those for which the laptop's file stays, as far as the transfer knows them.
    """

    exit_code: int
    stdout: bytes
    error_text: str
    came: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    @property
    def partial(self) -> bool:
        """True if some files could not be transferred."""
        return self.exit_code in PARTIAL


@dataclass(frozen=True, slots=True)
class FetchRule:
    """Rules of `fetch` for files that are on the laptop already.

    newer_stays: keep a local file that is newer, or of the same size and time, or not as `placed`.
    placed: by path, size and mtime_ns of what earlier fetches have put here. Those of this one are
        added.
    other: of these the content is known to differ, also with the same size and time.
    safe_links: skip symlinks that lead out of the tree.
    partial_dir: directory for partly received files, which the next call continues.
    big: the files that are worth it; where rsync is missing, only these are continued.
    backup_dir: directory for the former content.
    stall_s: after so long without a byte the link counts as dead.
    """

    newer_stays: bool = False
    placed: dict[str, tuple[int, int]] = field(default_factory=dict)
    other: frozenset[str] = frozenset()
    safe_links: bool = False
    partial_dir: Path | None = None
    big: frozenset[str] = frozenset()
    backup_dir: Path | None = None
    stall_s: int = 60


@dataclass(frozen=True, slots=True)
class Known:
    """The files of a `push` whose content the caller knows.

    seen: the files when they were hashed. note: awaited before anything is put in place, with the
        digests of files that have changed since, if the transfer knows them.
    """

    seen: Mapping[str, Entry]
    note: Callable[[Mapping[str, str]], Coroutine[None, None, None]]


class Transfer(Protocol):
    """Sends and fetches files by name; never deletes.

    Paths are relative to both roots. A reader at either end sees the old content of a file or the
    new one.

    sends_deltas: True if only the changed parts of a big file are sent.
    """

    sends_deltas: bool

    async def push(
        self,
        paths: Collection[str],
        remote_root: str,
        *,
        size_bytes: int,
        known: Known | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """Send these paths whatever their size and times there.

        known: what was hashed; where tk reads the files itself, it notes what it reads instead.
        on_output: called with the progress, in the format of `rsync --info=progress2`. Raises
            ConnectionFailed (transient) if the link failed, MirrorError, MissingProgram or
            TimeoutExpired.
        """
        ...

    async def adopt(
        self, paths: Collection[str], remote_root: str, *, backup_dir: str, size_bytes: int
    ) -> TransferResult:
        """Send these paths where files exist that tk did not write.

        Equal files stay; others are first moved to `backup_dir` (absolute). stdout itemizes.
        """
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
        """Bring these paths to the laptop.

        size_bytes: their listed size; a transfer of far more is ended.
        listen: called with the progress, as in `push`. Raises as `push`, and MirrorError if the
            remote end sends files that were not requested.
        """
        ...

    async def differing(
        self, paths: Collection[str], remote_root: str, *, size_bytes: int
    ) -> set[str]:
        """Return the paths that are not the same at both ends, by content."""
        ...


def progress_line(sent_bytes: int, size_bytes: int, files: int) -> bytes:
    """Return a progress as `rsync --info=progress2` prints it."""
    part = 100 * sent_bytes // size_bytes if size_bytes else 100
    return b"%d %d%% 0 0:00:00 (xfr#%d, to-chk=0/0)\r" % (sent_bytes, min(part, 100), files)
