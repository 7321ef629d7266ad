"""Files that the laptop's files replace are kept in .tk-replaced, below the same root."""

import contextlib
import os
from typing import Tuple

from tunnelkit.agent.mirror.dirfd_tree import Blocked, DirfdTree, lstat, split, text_of

REPLACED_DIR = b".tk-replaced"
#: Of one path, in one directory.
_MANY = 1000


class ReplacedFiles:
    """A batch's place for it. `close` at the end."""

    def __init__(self, root_fd: int, name: bytes) -> None:
        """name: of the directory in .tk-replaced."""
        self._name = name
        #: Of its own: no way of the caller's may be closed meanwhile.
        self._tree = DirfdTree(root_fd)

    def close(self) -> None:
        """Let go of the directories."""
        self._tree.close()

    def keep(self, tree: DirfdTree, path: bytes, *, gone: bool) -> None:
        """Keep the file at that path.

        It goes from there if `gone`; else the new file is renamed over it. Nothing kept before is
        overwritten. Raises Blocked or OSError.
        """
        for number in range(_MANY):
            top = self._name + (b"-%d" % number if number else b"")
            try:
                keep, kept = self._place(REPLACED_DIR + b"/" + top + b"/" + path)
            except Blocked as error:
                if error.is_link:
                    raise
                continue
            if lstat(keep, kept) is not None:
                continue
            fd, name = tree.find(path)
            if gone or not _link(fd, name, keep, kept):
                os.rename(name, kept, src_dir_fd=fd, dst_dir_fd=keep)
            return
        raise OSError(0, f"no place left for it in {text_of(REPLACED_DIR)}")

    def _place(self, path: bytes) -> Tuple[int, bytes]:
        """The directory of that path, made, and the name in it."""
        parent, name = split(path)
        end = 0
        while 0 <= end < len(parent):
            end = parent.find(b"/", end + 1)
            way = parent if end < 0 else parent[:end]
            above, part = self._tree.find(way)
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=above)
        return self._tree.directory(parent), name


def _link(fd: int, name: bytes, to_fd: int, to_name: bytes) -> bool:
    """A second name, so that the first is never missing. False where there are no such."""
    try:
        os.link(name, to_name, src_dir_fd=fd, dst_dir_fd=to_fd, follow_symlinks=False)
    except OSError:
        return False
    return True
