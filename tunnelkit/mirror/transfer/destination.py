"""Where files of the far side land: below the laptop's root, and nowhere else.

Every directory on the way is opened from the one above it, and no symlink is followed. So
neither a name nor a link, old or just made, leads a write out of the root.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Collection, Iterator
from pathlib import Path

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.remote.owner import OWNER_FILE
from tunnelkit.mirror.tree.ignore import REPLACED_DIR

_GITIGNORE = ".gitignore"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_NAMES = frozenset({"", ".", ".."})
_SHOWN_CHARS = 80
#: Files may grow between the listing and their sending: twice what was listed, and this.
_GROWTH_BYTES = 64 << 20
FAR_MORE = "it sends far more than it had listed"


def most_bytes(listed_bytes: int) -> int:
    """How much content is taken where so much was listed."""
    return 2 * listed_bytes + _GROWTH_BYTES


def hostile(host: str, what: str) -> MirrorError:
    """The error for a far side that does what no honest one does."""
    return MirrorError(
        f"{host} is not believed: {what}",
        hint="nothing more is taken from it; look at who changed the login's files there",
    )


def admitted(name: str, wanted: Collection[str], host: str) -> str:
    """The path of a name that the far side listed, relative to the root. wanted: what was
    asked for; "" is the root. Raises MirrorError unless it is at or below one of them."""
    path = name.removeprefix("./").removeprefix("./")  # below the root itself it has two
    parts = path.split("/")
    if not _NO_NAMES.intersection(parts):
        for end in range(len(parts) + 1):
            if "/".join(parts[:end]) not in wanted:
                continue
            # What tk keeps there is never listed, unless the person names it.
            if not {REPLACED_DIR, OWNER_FILE}.intersection(parts[end:]):
                return path
    shown = ascii(name[:_SHOWN_CHARS])
    raise hostile(host, f"its list of files names {shown}, which was not asked for")


class Destination:
    """Directories below one root, by descriptors. Used by one thread; `close` at the end."""

    def __init__(self, root: str, *, mode: int = 0o777) -> None:
        """mode: of directories that are made, as far as the umask leaves it."""
        self._root = root
        self._mode = mode
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._made: list[str] = []

    def close(self) -> None:
        """Remove the directories that were made and stayed empty; let go of the root."""
        for path in reversed(self._made):
            with contextlib.suppress(OSError), self.parent(path) as (fd, name):
                os.rmdir(name, dir_fd=fd)
        os.close(self._fd)

    @contextlib.contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open directory of a path, and the name in it. make: what is missing on the way
        is made. Raises OSError, also for a symlink on the way."""
        *above, name = path.split("/")
        fd = os.dup(self._fd)
        try:
            for end, part in enumerate(above, 1):
                below = self._enter(fd, part, "/".join(above[:end]), make)
                os.close(fd)
                fd = below
            yield fd, name
        finally:
            os.close(fd)

    def _enter(self, fd: int, part: str, path: str, make: bool) -> int:
        if part in _NO_NAMES:
            raise OSError(errno.EINVAL, "no path below the project")
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, self._mode, dir_fd=fd)
                self._made.append(path)
        try:
            return os.open(part, _DIRECTORY, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise OSError(error.errno, f"{path!a} is no directory here") from None
            raise

    def leads_out(self, path: str) -> bool:
        """Whether what is at that path, links followed, is outside of the root."""
        root = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(self._root, path))
        return real != root and not real.startswith(root.rstrip("/") + "/")

    def remove(self, path: str) -> None:
        """Remove a file or symlink, if it is there."""
        with contextlib.suppress(FileNotFoundError), self.parent(path) as (fd, name):
            os.unlink(name, dir_fd=fd)


def own_dir(root: str, name: str) -> Path:
    """A directory of the user's alone in .tk-replaced below the laptop's root, which neither tk
    nor git takes along; made unless it is there. Raises OSError, MirrorError for a symlink."""
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
    """Raises MirrorError for what is not the directory or file that tk made there."""
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
    """Remove a directory of `own_dir`, and what is above it, unless something is in it."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    with contextlib.suppress(OSError):
        if os.listdir(directory.parent) == [_GITIGNORE]:
            (directory.parent / _GITIGNORE).unlink()
            directory.parent.rmdir()


def temporary_name() -> str:
    """A name that nothing has, for what is not whole yet."""
    return f".tk-{secrets.token_hex(8)}"
