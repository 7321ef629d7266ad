"""Private directory into which the laptop's rsync writes what the cluster sends.

Neither the sender nor the checks of an old local rsync are trusted. Symlinks arrive munged (they
lead nowhere). Sizes and counts are limited during the transfer. Only requested files are moved into
the project, by `place`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.transfer.base import FetchRule, TransferResult
from tunnelkit.mirror.transfer.destination import (
    FAR_MORE,
    Destination,
    hostile,
    most_bytes,
    own_dir,
    tidy,
)
from tunnelkit.mirror.transfer.placement import Arrival, Placer, move
from tunnelkit.mirror.tree.paths import with_parents

_PREFIX = "incoming-"
#: Prefix that rsync's --munge-links puts before each target.
_MUNGED = "/rsyncd-munged/"
#: Messages of the laptop's rsync about names that it rejects; it then ends.
_REFUSALS = ("ABORTING due to", "rejecting ", "unsafe pathname")
#: Its message about a file beyond its limit, or beyond that of the file system, if so large.
_TOO_LARGE = "File too large"
_LEAST_LIMIT_BYTES = 4 << 30
_TICK_S = 0.25
_SPARE_ENTRIES = 64
#: Limit for rsync's list of files: a hostile sender's list has no end.
_MEMORY_BYTES = 4 << 30
# POSIX: `ulimit -f` counts units of 512 bytes. Not every system can limit memory.
_BOUNDED = 'ulimit -f "$1" || exit 97; ulimit -v "$2" 2>/dev/null; shift 2; exec "$@"'


class StagingDirectory:
    """The directories of one transfer. All methods block, except `watched`.

    `new`: rsync writes into it. `basis`: hard links to the files that exist on the laptop, for
    rsync's deltas."""

    def __init__(
        self, root: str, paths: Collection[str], *, rule: FetchRule, size_bytes: int, host: str
    ) -> None:
        """size_bytes: the listed size. Raises OSError."""
        self._root = root
        self._paths = frozenset(paths)
        self._rule = rule
        self._host = host
        self._most_bytes = most_bytes(size_bytes)
        self._most_entries = len(with_parents(self._paths)) + _SPARE_ENTRIES
        self._directory = own_dir(root, f"{_PREFIX}{secrets.token_hex(8)}")
        # Held as long as the transfer lives: see `_remove_left`.
        self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.came: dict[str, bool] = {}
        self.failed: dict[str, str] = {}
        self._distrusted = False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove_left()
            self.new = self._directory / "new"
            self.basis = self._directory / "basis"
            self.new.mkdir(0o700)
            self.basis.mkdir(0o700)
            self._link_basis()
        except BaseException:
            self.remove()
            raise

    def options(self) -> list[str]:
        """Return the options that rsync needs to write into `new`."""
        return ["--munge-links", "--no-devices", "--no-specials", f"--compare-dest={self.basis}"]

    def bounded(self, argv: Sequence[str]) -> list[str]:
        """Return the command with limits on its memory and on the size of each file."""
        blocks = self._most_bytes // 512 + 1
        return ["sh", "-c", _BOUNDED, "tk", str(blocks), str(_MEMORY_BYTES >> 10), *argv]

    async def watched(self, transfer: Coroutine[Any, Any, TransferResult]) -> TransferResult:
        """Return the transfer's result.

        Raises what the transfer raises. Ends it and raises MirrorError for far more content or
        files than were listed, or for files that were not requested."""
        task = asyncio.ensure_future(transfer)
        try:
            pause_s = _TICK_S
            while not (await asyncio.wait({task}, timeout=pause_s))[0]:
                begin = time.monotonic()
                await asyncio.to_thread(self._measure)
                pause_s = max(_TICK_S, 10 * (time.monotonic() - begin))
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # retrieved, whether it is raised below or something else is
        await asyncio.to_thread(self._measure, ended=True)
        try:
            result = task.result()
        except MirrorError as error:
            if any(word in (error.cause or "") for word in _REFUSALS):
                raise self._distrust("its rsync sends what was not asked for") from error
            raise
        if _TOO_LARGE in result.error_text and self._most_bytes < _LEAST_LIMIT_BYTES:
            raise self._distrust(FAR_MORE)
        return result

    def place(self) -> None:
        """Move the requested, complete files into the project; symlinks last.

        Call only after rsync has ended."""
        placer = Placer(self._root, self._rule)
        source = Destination(str(self.new))
        links: dict[str, Arrival] = {}
        try:
            for path in sorted(self._paths):
                with contextlib.suppress(FileNotFoundError), source.parent(path) as (fd, name):
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISLNK(info.st_mode):
                        target = os.readlink(name, dir_fd=fd).removeprefix(_MUNGED)
                        links[path] = Arrival(info.st_size, info.st_mtime_ns, target)
                    elif stat.S_ISREG(info.st_mode) and info.st_nlink == 1:
                        arrival = Arrival(info.st_size, info.st_mtime_ns)
                        placer.file(path, arrival, partial(_move, fd, name))
                    else:
                        self.failed[path] = f"{path!a} is neither a file nor a symlink there"
            placer.links(links)
        finally:
            self.came = placer.came
            self.failed.update(placer.failed)
            placer.close()
            source.close()

    def remove(self) -> None:
        """Remove the directories. Idempotent.

        If the host is not trusted, also remove what was kept for the next call."""
        if self._distrusted and self._rule.partial_dir is not None:
            _remove(self._rule.partial_dir)
        if self._lock >= 0:
            lock, self._lock = self._lock, -1
            _remove(self._directory)
            tidy(self._directory)
            os.close(lock)

    # -- inside -----------------------------------------------------------

    def _remove_left(self) -> None:
        """Remove the leftovers of killed sessions."""
        for other in self._directory.parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                fd = os.open(other, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(other)
                finally:
                    os.close(fd)

    def _link_basis(self) -> None:
        """Link the requested files only.

        From the checksums that rsync sends, the host could guess a file's content."""
        here, basis = Destination(self._root), Destination(str(self.basis))
        try:
            for path in self._paths:
                with contextlib.suppress(OSError), here.parent(path) as (fd, name):
                    if stat.S_ISREG(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                        with basis.parent(path, make=True) as (there, same):
                            os.link(
                                name, same, src_dir_fd=fd, dst_dir_fd=there, follow_symlinks=False
                            )
        finally:
            here.close()
            basis.close()

    def _distrust(self, what: str) -> MirrorError:
        self._distrusted = True
        return hostile(self._host, what)

    def _measure(self, *, ended: bool = False) -> None:
        """Raise MirrorError for far more than was listed.

        ended: rsync has ended, so each file has its final name or is an interrupted one."""
        total = 0
        for entries, (path, info) in enumerate(_walk(self.new), 1):
            total += info.st_size if stat.S_ISREG(info.st_mode) else 0
            if total > self._most_bytes or entries > self._most_entries:
                raise self._distrust(FAR_MORE)
            if ended and not stat.S_ISDIR(info.st_mode) and path not in self._paths:
                name = os.path.basename(path)
                if not (name.startswith(".") and name[1:].rpartition(".")[0]):
                    raise self._distrust(f"it sends {path[:80]!a}, which was not asked for")


def _move(from_fd: int, name: str, fd: int, new: str) -> None:
    mode = stat.S_IMODE(os.stat(name, dir_fd=from_fd, follow_symlinks=False).st_mode)
    move(from_fd, name, fd, new)
    if mode & ~0o755:
        os.chmod(new, mode & 0o755, dir_fd=fd)


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a directory that may change meanwhile. Follows no symlink."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(root / below) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        waiting.append(path)
                    yield path, info


def _remove(directory: Path) -> None:
    """Remove a tree, also if the sender has made a directory in it inaccessible."""
    for path, info in _walk(directory):
        if stat.S_ISDIR(info.st_mode) and info.st_mode & 0o700 != 0o700:
            os.chmod(directory / path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)
