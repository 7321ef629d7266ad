"""Directories on the laptop that receive files: below the mirrored root, and nowhere else.

Every directory on the path is opened from the one above it, and no symlink is followed. So no name
and no symlink, old or new, can lead a write out of the root."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.remote.owner import OWNER_FILE
from tunnelkit.mirror.tree.ignore import REPLACED_DIR

_GITIGNORE = ".gitignore"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_NAMES = frozenset({"", ".", ".."})
_SHOWN_CHARS = 80
#: Then directories are opened from the root again: the user may have moved one away.
_HELD_S = 1.0
#: Files may grow between listing and sending: twice what was listed, plus this.
_GROWTH_BYTES = 64 << 20
FAR_MORE = "it sends far more than it had listed"


def most_bytes(listed_bytes: int) -> int:
    """Return the limit for received content if so much was listed."""
    return 2 * listed_bytes + _GROWTH_BYTES


def hostile(host: str, what: str) -> MirrorError:
    """Return the error for a host that sends what an honest one never sends."""
    return MirrorError(
        f"{host} is not believed: {what}",
        hint="nothing more is taken from it; look at who changed the login's files there",
    )


def admitted(name: str, wanted: Collection[str], host: str) -> str:
    """Return the path of a name that the host listed, relative to the root.

    wanted: the requested paths; "" is the root.
    Raises MirrorError unless the path is at or below one of them."""
    path = name.removeprefix("./").removeprefix("./")  # below the root itself it starts with two
    parts = path.split("/")
    if not _NO_NAMES.intersection(parts):
        for end in range(len(parts) + 1):
            if "/".join(parts[:end]) not in wanted:
                continue
            # tk's own files there are never listed, unless the user names them.
            if not {REPLACED_DIR, OWNER_FILE}.intersection(parts[end:]):
                return path
    shown = ascii(name[:_SHOWN_CHARS])
    raise hostile(host, f"its list of files names {shown}, which was not asked for")


class Destination:
    """Directories below one root, by descriptors. Used by one thread; `close` at the end."""

    def __init__(self, root: str, *, mode: int = 0o777) -> None:
        """mode: of new directories, reduced by the umask."""
        self._root = root
        self._mode = mode
        self._made: list[str] = []
        # The last path's directories stay open, since its neighbours come next: the root, `_above`.
        self._fds = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        self._above: list[str] = []
        self._at = ""
        self._opened_at = 0.0

    def close(self) -> None:
        """Remove the new directories that stayed empty, and close all."""
        for path in reversed(self._made):
            self.remove_dir(path)
        self._leave(0)
        os.close(self._fds.pop())

    def enter(self, path: str, *, make: bool = False) -> tuple[int, str]:
        """Return the descriptor of a path's directory, and the name in it.

        The descriptor is open until the next call of a method. make: create missing directories
        on the path. Raises OSError, also for a symlink on the path."""
        directory, slash, name = path.rpartition("/")
        now = time.monotonic()
        if now - self._opened_at > _HELD_S:
            self._leave(0)
            self._opened_at = now
        if directory + slash != self._at:
            parts = (directory + slash).split("/")[:-1]
            same = 0
            while same < len(parts) and parts[: same + 1] == self._above[: same + 1]:
                same += 1
            self._leave(same)
            for part in parts[same:]:
                self._open(part, make)
        return self._fds[-1], name

    def _leave(self, depth: int) -> None:
        """Close the directories that are deeper."""
        while len(self._above) > depth:
            self._above.pop()
            os.close(self._fds.pop())
        self._at = "".join(f"{part}/" for part in self._above)

    def _open(self, part: str, make: bool) -> None:
        """Open a directory in the last one that is open."""
        if part in _NO_NAMES:
            raise OSError(errno.EINVAL, "no path below the project")
        path = self._at + part
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, self._mode, dir_fd=self._fds[-1])
                self._made.append(path)
        try:
            fd = os.open(part, _DIRECTORY, dir_fd=self._fds[-1])
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise OSError(error.errno, f"{path!a} is no directory here") from None
            raise
        self._fds.append(fd)
        self._above.append(part)
        self._at = f"{path}/"

    def leads_out(self, path: str) -> bool:
        """Return True if that path, with symlinks followed, is outside of the root."""
        root = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(self._root, path))
        return real != root and not real.startswith(root.rstrip("/") + "/")

    def remove(self, path: str) -> None:
        """Remove a file or symlink, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            fd, name = self.enter(path)
            os.unlink(name, dir_fd=fd)

    def remove_dir(self, path: str) -> None:
        """Remove a directory, if it is there and empty."""
        with contextlib.suppress(OSError):
            fd, name = self.enter(path)
            os.rmdir(name, dir_fd=fd)


def own_dir(root: str, name: str) -> Path:
    """Make a private directory in .tk-replaced below the laptop's root, unless it exists.

    The mirror and git ignore it. Raises OSError, or MirrorError for a symlink."""
    top = Path(root, REPLACED_DIR)
    top.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        top.mkdir(mode=0o700)
    with _not_in_the_way(top):
        fd = os.open(top, _DIRECTORY)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with _not_in_the_way(top / _GITIGNORE):
            ignore = os.open(_GITIGNORE, flags, 0o600, dir_fd=fd)
        with open(ignore, "w") as out:
            out.write("*\n")
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=fd)
        with _not_in_the_way(top / name):
            os.close(os.open(name, _DIRECTORY, dir_fd=fd))
    finally:
        os.close(fd)
    return top / name


@contextlib.contextmanager
def _not_in_the_way(path: Path) -> Iterator[None]:
    """Raise MirrorError if the path is not the directory or file that tk made there."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EISDIR):
            raise
        raise MirrorError(
            f"{path} is a symlink, or no {'file' if path.name == _GITIGNORE else 'directory'}",
            hint="remove it: tk keeps files there",
        ) from None


def tidy(directory: Path) -> None:
    """Remove a directory of `own_dir`, and the directory above it, unless something is in it."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    with contextlib.suppress(OSError):
        if os.listdir(directory.parent) == [_GITIGNORE]:
            (directory.parent / _GITIGNORE).unlink()
            directory.parent.rmdir()
