"""Private directory into which the laptop's rsync writes what the cluster sends.

Neither the sender nor the checks of an old local rsync are trusted. Symlinks arrive munged (they
lead nowhere). Sizes and counts are limited during the transfer. Only requested files are moved into
the project, by `place`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.transfer.base import FetchRule, TransferResult, progress_line
from tunnelkit.mirror.transfer.destination import (
    FAR_MORE,
    Destination,
    hostile,
    most_bytes,
    own_dir,
    tidy,
)
from tunnelkit.mirror.transfer.placement import Arrival, Placer
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
#: A time that every coarser clock would round.
_ODD_NS = 1_000_000_001_123_456_789
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
        self._size_bytes = size_bytes
        self._most_bytes = most_bytes(size_bytes)
        self._most_entries = len(with_parents(self._paths)) + _SPARE_ENTRIES
        self._directory = own_dir(root, f"{_PREFIX}{secrets.token_hex(8)}")
        # Held as long as the transfer lives: see `_remove_left`.
        self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.came: dict[str, bool] = {}
        self.kept: set[str] = set()
        self.failed: dict[str, str] = {}
        self._distrusted = self._has_basis = False
        self._found: dict[str, tuple[int, Arrival]] = {}
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
        basis = [f"--compare-dest={self.basis}"] if self._has_basis else []
        return ["--munge-links", "--no-devices", "--no-specials", *basis]

    def keeps_ns(self) -> bool:
        """Return True if the file system keeps the nanoseconds of a file's time.

        One that rounds them would make every file that came differ from the one there."""
        probe = self._directory / "time"
        try:
            probe.write_bytes(b"")
            os.utime(probe, ns=(_ODD_NS, _ODD_NS))
            return probe.stat().st_mtime_ns == _ODD_NS
        except OSError:
            return False

    def bounded(self, argv: Sequence[str]) -> list[str]:
        """Return the command with limits on its memory and on the size of each file."""
        blocks = self._most_bytes // 512 + 1
        return ["sh", "-c", _BOUNDED, "tk", str(blocks), str(_MEMORY_BYTES >> 10), *argv]

    async def watched(
        self,
        transfer: Coroutine[object, object, TransferResult],
        listen: Callable[[bytes], None] | None = None,
    ) -> TransferResult:
        """Return the transfer's result.

        listen: called with the progress. Raises what the transfer raises. Ends it and raises
        MirrorError for far more content or files than were listed, or for files that were not
        requested."""
        task = asyncio.ensure_future(transfer)
        try:
            pause_s = _TICK_S
            while not (await asyncio.wait({task}, timeout=pause_s))[0]:
                begin = time.monotonic()
                progress = await asyncio.to_thread(self._measure)
                if listen is not None:
                    listen(progress)
                pause_s = max(_TICK_S, 10 * (time.monotonic() - begin))
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # retrieved, whether it is raised below or something else is
        progress = await asyncio.to_thread(self._measure, ended=True)
        if listen is not None:
            listen(progress)
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
        walked = self._found or {path: _noted(info) for path, info in _walk(self.new)}
        placer = Placer(self._root, self._rule)
        source = Destination(str(self.new))
        links: dict[str, Arrival] = {}
        try:
            for path in sorted(self._paths & walked.keys()):
                mode, arrival = walked[path]
                with contextlib.suppress(FileNotFoundError):
                    fd, name = source.enter(path)
                    if stat.S_ISLNK(mode):
                        target = os.readlink(name, dir_fd=fd).removeprefix(_MUNGED)
                        links[path] = replace(arrival, target=target)
                    elif stat.S_ISREG(mode):
                        placer.move(path, arrival, mode, fd, name)
                    else:
                        self.failed[path] = f"{path!a} is neither a file nor a symlink there"
            placer.links(links)
        finally:
            self.came, self.kept = placer.came, placer.kept
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
            for _, paths in itertools.groupby(sorted(self._paths), _directory):
                with contextlib.suppress(OSError):
                    for path in paths:
                        fd, name = here.enter(path)  # a failure holds for the whole directory
                        self._has_basis |= _link_regular(fd, name, basis, path)
        finally:
            here.close()
            basis.close()

    def _distrust(self, what: str) -> MirrorError:
        self._distrusted = True
        return hostile(self._host, what)

    def _measure(self, *, ended: bool = False) -> bytes:
        """Return the progress. Raise MirrorError for far more than was listed.

        ended: rsync has ended, so each file has its final name or is an interrupted one."""
        total = files = 0
        for entries, (path, info) in enumerate(_walk(self.new), 1):
            total += info.st_size if stat.S_ISREG(info.st_mode) else 0
            if total > self._most_bytes or entries > self._most_entries:
                raise self._distrust(FAR_MORE)
            if path in self._paths:
                files += 1
                if ended:
                    self._found[path] = _noted(info)
            elif ended and not stat.S_ISDIR(info.st_mode):
                name = os.path.basename(path)
                if not (name.startswith(".") and name[1:].rpartition(".")[0]):
                    raise self._distrust(f"it sends {path[:80]!a}, which was not asked for")
        return progress_line(total, self._size_bytes, files)


def _noted(info: os.stat_result) -> tuple[int, Arrival]:
    """Return the mode, 0 for a file of several names, and the size and time of the file."""
    alone = info.st_nlink == 1 or stat.S_ISLNK(info.st_mode)
    return info.st_mode if alone else 0, Arrival(info.st_size, info.st_mtime_ns)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def _link_regular(fd: int, name: str, basis: Destination, path: str) -> bool:
    """Link a file into the basis. Return False if it is none, or can't be linked."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            there, same = basis.enter(path, make=True)
            os.link(name, same, src_dir_fd=fd, dst_dir_fd=there, follow_symlinks=False)
            return True
    return False


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a directory that may change meanwhile. Follows no symlink."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(root / below) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(info.st_mode):
                    waiting.append(path)
                yield path, info


def _remove(directory: Path) -> None:
    """Remove a tree, also if the sender has made a directory in it inaccessible."""
    shutil.rmtree(directory, ignore_errors=True)
    for path, info in _walk(directory):
        if stat.S_ISDIR(info.st_mode) and info.st_mode & 0o700 != 0o700:
            os.chmod(directory / path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)
