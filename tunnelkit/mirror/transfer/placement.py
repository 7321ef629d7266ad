"""Puts received files in place on the laptop, each by one rename.

Used by both transfers. The content is not trusted: no symlink on the path is followed, a symlink
that leads out is not made, and replaced content is kept first."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from tunnelkit.mirror.transfer.base import FetchRule
from tunnelkit.mirror.transfer.destination import Destination
from tunnelkit.mirror.tree.ignore import PART_PREFIX

_NS = 1_000_000_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Permissions that no received file gets.
_NEVER = 0o7022
#: For a new file.
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Arrival:
    """A received file or symlink.

    target: a symlink's target, None for a file.
    exact: True if the time is exact to the nanosecond, False if to the second."""

    size: int
    mtime_ns: int
    target: str | None = None
    exact: bool = True


class Placer:
    """Places files and symlinks below one root. Used by one thread; `close` at the end."""

    def __init__(self, root: str, rule: FetchRule) -> None:
        self._root = root
        self._rule = rule
        self._landing: Destination | None = None
        self._kept: Destination | None = None
        #: came: path -> True for a symlink; kept: paths that need not be placed; failed: path ->
        #: reason
        self.came: dict[str, bool] = {}
        self.kept: set[str] = set()
        self.failed: dict[str, str] = {}

    def close(self) -> None:
        """Remove directories that stayed empty."""
        for landing in (self._landing, self._kept):
            if landing is not None:
                landing.close()
        self._landing = self._kept = None

    def _open(self) -> Destination:
        if self._landing is None:
            self._landing = Destination(self._root)
        return self._landing

    def needs(self, path: str, arrival: Arrival) -> bool:
        """Return True if the file must be placed. Errors as for `file`."""
        try:
            return self._place(path, arrival) is not None
        except OSError as error:
            self._fail(path, error)
            return False

    def file(self, path: str, arrival: Arrival, make: Callable[[int, str], None]) -> None:
        """Place a file or symlink. Errors of the system go into `failed`.

        make: called with a directory's descriptor and an unused name; creates the file under that
            name."""
        try:
            if place := self._place(path, arrival):
                fd, name = place
                with _temporary(fd) as temporary:
                    make(fd, temporary)
                    times = (arrival.mtime_ns, arrival.mtime_ns)
                    os.utime(temporary, ns=times, dir_fd=fd, follow_symlinks=False)
                    self._back_up(fd, name, path)
                    os.replace(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
                self._came(path, fd, name, is_link=arrival.target is not None)
        except OSError as error:
            self._fail(path, error)

    def move(self, path: str, arrival: Arrival, mode: int, from_fd: int, from_name: str) -> None:
        """Move a finished file out of a private directory. Errors as for `file`.

        mode: its `st_mode` there."""
        try:
            if place := self._place(path, arrival):
                if mode & _NEVER:
                    os.chmod(from_name, stat.S_IMODE(mode) & ~_NEVER, dir_fd=from_fd)
                self._back_up(*place, path)
                move(from_fd, from_name, *place)
                self._came(path, *place, is_link=False)
        except OSError as error:
            self._fail(path, error)

    def links(self, links: dict[str, Arrival]) -> None:
        """Make the symlinks, after all files.

        A symlink that leads out by way of another one is removed."""
        for path, arrival in links.items():
            if path not in self.came:
                self.file(path, arrival, partial(_link, arrival.target or ""))
        if not self._rule.safe_links:
            return
        for path in sorted(links.keys() & self.came.keys()):
            if self._open().leads_out(path):
                self._open().remove(path)
                del self.came[path]
                self.kept.add(path)

    def _place(self, path: str, arrival: Arrival) -> tuple[int, str] | None:
        """Return the open directory and the name for a path; None if it need not be placed."""
        target = arrival.target
        if target is not None and self._rule.safe_links and _leads_out(path, target):
            self.kept.add(path)
            return None
        fd, name = self._open().enter(path, make=True)
        if self._rule.newer_stays and _stays(
            fd, name, arrival, self._rule.placed.get(path), is_other=path in self._rule.other
        ):
            self.kept.add(path)
            return None
        return fd, name

    def _came(self, path: str, fd: int, name: str, *, is_link: bool) -> None:
        self.came[path] = is_link
        here = os.stat(name, dir_fd=fd, follow_symlinks=False)
        self._rule.placed[path] = (here.st_size, here.st_mtime_ns)

    def _fail(self, path: str, error: OSError) -> None:
        self.failed[path] = f"{path!a}: {error.strerror or error}"

    def _back_up(self, fd: int, name: str, path: str) -> None:
        if self._rule.backup_dir is None:
            return
        try:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if self._kept is None:
            self._kept = _private(self._rule.backup_dir)
        there, kept = self._kept.enter(path, make=True)
        try:
            os.link(name, kept, src_dir_fd=fd, dst_dir_fd=there, follow_symlinks=False)
        except (OSError, NotImplementedError):  # macOS links no symlinks
            move(fd, name, there, kept)


def _link(target: str, fd: int, name: str) -> None:
    os.symlink(target, name, dir_fd=fd)


def _private(directory: Path) -> Destination:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Destination(str(directory), mode=0o700)


def move(from_fd: int, name: str, to_fd: int, new: str) -> None:
    """Move a file or symlink between two open directories, also across file systems.

    A reader of `new` sees the former file or the whole new one."""
    try:
        os.rename(name, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    info = os.stat(name, dir_fd=from_fd, follow_symlinks=False)
    with _temporary(to_fd) as temporary:
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(name, dir_fd=from_fd), temporary, dir_fd=to_fd)
        else:
            with (
                open(os.open(name, _READ, dir_fd=from_fd), "rb") as source,
                open(os.open(temporary, NEW, 0o600, dir_fd=to_fd), "wb") as out,
            ):
                shutil.copyfileobj(source, out, 1 << 20)
                os.fchmod(out.fileno(), stat.S_IMODE(info.st_mode))
            times = (info.st_atime_ns, info.st_mtime_ns)
            os.utime(temporary, ns=times, dir_fd=to_fd, follow_symlinks=False)
        os.replace(temporary, new, src_dir_fd=to_fd, dst_dir_fd=to_fd)
    os.unlink(name, dir_fd=from_fd)


@contextlib.contextmanager
def _temporary(fd: int) -> Iterator[str]:
    """Yield an unused name in an open directory. If the body fails, remove the file."""
    name = f"{PART_PREFIX}{secrets.token_hex(8)}"  # which is never mirrored
    try:
        yield name
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)
        raise


def _stays(
    fd: int, name: str, arrival: Arrival, placed: tuple[int, int] | None, *, is_other: bool
) -> bool:
    """Return True if the local file or symlink is newer, or the same as far as stat can tell.

    is_other: it is known not to be the same.
    placed: its size and mtime_ns as it came last time. If it has others by now, it was edited here,
    and stays: a clock that is behind makes an edit look older."""
    try:
        here = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    is_link = stat.S_ISLNK(here.st_mode)
    if not (is_link or stat.S_ISREG(here.st_mode)):
        return False
    if placed is not None and placed != (here.st_size, here.st_mtime_ns):
        return True
    ours_ns = here.st_mtime_ns if arrival.exact else here.st_mtime_ns // _NS * _NS
    if is_link != (arrival.target is not None):
        same = False
    elif is_link:
        same = os.readlink(name, dir_fd=fd) == arrival.target
    else:
        same = ours_ns == arrival.mtime_ns and here.st_size == arrival.size and not is_other
    return ours_ns > arrival.mtime_ns or same


def _leads_out(path: str, target: str) -> bool:
    if target.startswith("/"):
        return True
    depth = len(PurePosixPath(path).parts) - 1
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False
