"""A directory and what is below it, reached by directory descriptors, one component at a time.

No symlink below the root is ever followed, whatever is swapped while we walk: a path that
leads through one is refused. Paths are bytes, relative to the root, components joined by `/`.
"""

import os
import stat
from typing import Dict, Iterator, List, Optional, Tuple

#: Open descriptors that one Tree keeps, the root's apart.
_MAX_OPEN = 64
_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
#: Never waits for the other end of a fifo.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_NO_NAMES = (b"", b".", b"..")


class BadPath(ValueError):
    """No path that could be below the root."""


class Blocked(Exception):
    """Something on the way is no directory. `is_link`: it is a symlink."""

    def __init__(self, path: bytes, *, is_link: bool) -> None:
        what = "symlink, which is not followed" if is_link else "file"
        super().__init__(f"on the cluster {text_of(path)} is a {what}")
        self.is_link = is_link


def path_of(text: object) -> bytes:
    """A path from the laptop. Raises BadPath unless it names something below the root."""
    if not isinstance(text, str):
        raise BadPath(f"no path: {text!r}")
    try:
        path = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadPath(f"no path: {text!r}") from None
    # Most paths are harmless: one check of the whole instead of one of each component.
    suspect = b"//" in path or b"/." in path or path[:1] in (b"", b".", b"/") or path[-1:] == b"/"
    if b"\0" in path or (suspect and any(part in _NO_NAMES for part in path.split(b"/"))):
        raise BadPath(f"no path below the root: {text!r}")
    return path


def text_of(path: bytes) -> str:
    """A path as the laptop knows it."""
    return path.decode("utf-8", "surrogateescape")


def split(path: bytes) -> Tuple[bytes, bytes]:
    """The directory (b"" is the root) and the name in it."""
    parent, _, name = path.rpartition(b"/")
    return parent, name


def stamp_of(state: os.stat_result) -> str:
    """Changes with every change of the file: what lstat tells of it."""
    return f"{state.st_mtime_ns}:{state.st_ctime_ns}:{state.st_ino}:{state.st_size}"


def is_that(state: Optional[os.stat_result], stamp: str) -> bool:
    """True if the file still has that stamp. A rename changes no more than ctime."""
    if state is None:
        return False
    mtime, _, ino, size = stamp.split(":")
    return [mtime, ino, size] == [str(state.st_mtime_ns), str(state.st_ino), str(state.st_size)]


class DirfdTree:
    """The open directories below one root.

    It keeps some of them open; `renew` forgets them, so that each path is walked again. Used by one
    thread; `close` at the end.
    """

    def __init__(self, root_fd: int) -> None:
        """root_fd: of the root; stays the caller's."""
        self._root_fd = root_fd
        self._open: Dict[bytes, int] = {}

    def directory(self, path: bytes) -> int:
        """A descriptor of that directory, for use before the next call. Raises Blocked, or
        OSError (FileNotFoundError: it is not there)."""
        if not path:
            return self._root_fd
        fd = self._open.get(path)
        if fd is not None:
            return fd
        parts = path.split(b"/")
        known, fd = self._nearest(parts)
        for end in range(known + 1, len(parts) + 1):
            fd = self._enter(fd, parts[end - 1], b"/".join(parts[:end]))
        return fd

    def _nearest(self, parts: List[bytes]) -> Tuple[int, int]:
        """The number of components that are open already, and the descriptor of the last."""
        for end in range(len(parts) - 1, 0, -1):
            fd = self._open.get(b"/".join(parts[:end]))
            if fd is not None:
                return end, fd
        return 0, self._root_fd

    def _enter(self, above: int, name: bytes, path: bytes) -> int:
        try:
            fd = open_directory(name, os.O_NOFOLLOW, above)
        except OSError:
            state = lstat(above, name)
            if state is None or stat.S_ISDIR(state.st_mode):
                raise
            raise Blocked(path, is_link=stat.S_ISLNK(state.st_mode)) from None
        if len(self._open) >= _MAX_OPEN:
            # Never the one just entered through: that came last.
            os.close(self._open.pop(next(iter(self._open))))
        self._open[path] = fd
        return fd

    def find(self, path: bytes) -> Tuple[int, bytes]:
        """The directory's descriptor, for use before the next call, and the name in it.
        Raises as `directory`."""
        parent, name = split(path)
        return self.directory(parent), name

    def forget(self, path: bytes) -> None:
        """That directory has gone, or is another one now, and so is all below it."""
        below = path + b"/"
        for known in [one for one in self._open if one == path or one.startswith(below)]:
            os.close(self._open.pop(known))

    def renew(self) -> None:
        """Walk every path from the root again."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def close(self) -> None:
        """Let go of all descriptors but the root's."""
        self.renew()


def open_directory(path: bytes, flags: int = 0, dir_fd: Optional[int] = None) -> int:
    """A descriptor of a directory, to go through. Raises OSError.

    It is opened to be read where that is allowed: that makes an NFS client ask the server
    whether its names have changed, which O_PATH does not.
    """
    try:
        return os.open(path, os.O_RDONLY | _DIRECTORY | flags, dir_fd=dir_fd)
    except PermissionError:
        return os.open(path, os.O_PATH | _DIRECTORY | flags, dir_fd=dir_fd)


def lstat(dir_fd: int, name: bytes) -> Optional[os.stat_result]:
    """The stat of an entry; None if nothing is there. Raises OSError."""
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_to_read(dir_fd: int, name: bytes) -> int:
    """A descriptor of a file that is no symlink. Raises OSError."""
    return os.open(name, _READ, dir_fd=dir_fd)


def set_mode(dir_fd: int, name: bytes, mode: int, mtime_ns: Optional[int] = None) -> None:
    """The mode, and perhaps mtime, of a file or directory that is no symlink. Raises OSError."""
    try:
        fd = open_to_read(dir_fd, name)
    except PermissionError:
        _set_mode_unread(dir_fd, name, mode, mtime_ns)
        return
    try:
        os.fchmod(fd, mode)
        if mtime_ns is not None:
            os.utime(fd, ns=(mtime_ns, mtime_ns))
    finally:
        os.close(fd)


def _set_mode_unread(dir_fd: int, name: bytes, mode: int, mtime_ns: Optional[int]) -> None:
    """As set_mode, of what its owner may not read."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise FileNotFoundError(2, "it is a symlink now")
        os.chmod(f"/proc/self/fd/{fd}", mode)
        if mtime_ns is not None:
            os.utime(f"/proc/self/fd/{fd}", ns=(mtime_ns, mtime_ns))
    finally:
        os.close(fd)


def remove_all(dir_fd: int, name: bytes) -> None:
    """Remove a file, symlink or whole directory, as far as that goes. Never raises OSError."""
    try:
        os.unlink(name, dir_fd=dir_fd)
        return
    except OSError as error:
        if not isinstance(error, (IsADirectoryError, PermissionError)):
            return
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
    except OSError:
        return
    try:
        os.fchmod(fd, 0o700)
        for child in list(names(fd)):
            remove_all(fd, child)
    except OSError:
        pass
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=dir_fd)
    except OSError:
        pass


def names(fd: int) -> Iterator[bytes]:
    """The names in an open directory. Raises OSError."""
    for name in os.listdir(fd):
        # From a descriptor they come as text.
        yield os.fsencode(name)
