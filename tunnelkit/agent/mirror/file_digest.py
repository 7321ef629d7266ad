"""The content of a file or symlink, read so that it is known to have been whole."""

import hashlib
import os
import stat
from typing import NamedTuple

from tunnelkit.agent.mirror.dirfd_tree import lstat, open_to_read, stamp_of

_CHUNK_BYTES = 1024 * 1024
_TRIES = 3


class NotContent(Exception):
    """A directory, socket or the like: nothing that could be mirrored."""


class DigestReader(NamedTuple):
    """digest: sha256 hex; of a symlink's target, if it is one. state: the same before and
    after the reading."""

    digest: str
    state: os.stat_result

    @property
    def stamp(self) -> str:
        """See tree.stamp_of."""
        return stamp_of(self.state)


def read(dir_fd: int, name: bytes) -> DigestReader:
    """Read the content as it is now.

    The file is opened again: that makes an NFS client ask the server (close-to-open consistency).
    Raises OSError (also if it changes all the time) or NotContent.
    """
    for _ in range(_TRIES):
        try:
            fd = open_to_read(dir_fd, name)
        except OSError:
            state = lstat(dir_fd, name)
            if state is None or stat.S_ISREG(state.st_mode):
                raise
            if not stat.S_ISLNK(state.st_mode):
                raise NotContent from None
            digest = digest_of_link(dir_fd, name)
            after = lstat(dir_fd, name)
            if after is not None and stamp_of(after) == stamp_of(state):
                return DigestReader(digest, state)
            continue
        try:
            state = os.fstat(fd)
            if not stat.S_ISREG(state.st_mode):
                raise NotContent
            digest = _digest(fd, state.st_size)
            if stamp_of(os.fstat(fd)) == stamp_of(state):
                return DigestReader(digest, state)
        finally:
            os.close(fd)
    raise OSError(11, "it changes while it is read")


def digest_of_link(dir_fd: int, name: bytes) -> str:
    """sha256 hex of a symlink's target. Raises OSError."""
    return hashlib.sha256(os.readlink(name, dir_fd=dir_fd)).hexdigest()


def _digest(fd: int, size: int) -> str:
    """Of the first `size` bytes: whether there are more, a second look at its state tells."""
    state = hashlib.sha256()
    while size > 0:
        chunk = os.read(fd, min(size, _CHUNK_BYTES))
        if not chunk:
            break
        state.update(chunk)
        size -= len(chunk)
    return state.hexdigest()
