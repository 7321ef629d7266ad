"""The mirror's files as this node reads them: the proof of a batch, checks of all that was sent,
and the temporaries that a crash left.
"""

import contextlib
import os
import stat
import time
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, TypeVar

from tunnelkit.agent.mirror import file_digest
from tunnelkit.agent.mirror.dirfd_tree import (
    Blocked,
    DirfdTree,
    lstat,
    names,
    path_of,
    remove_all,
    split,
    stamp_of,
)
from tunnelkit.agent.mirror.expectation import ABSENT
from tunnelkit.agent.mirror.staging import DELETE, PART_PREFIX, StagedPath

#: A slice of work in the thread: the end of who asked is noticed after it.
SLICE_S = 0.02

DIR, LINK = "d", "l"
#: States of an item that mean that the batch's content is in its place.
_IN_PLACE = (None, "same", "replaced")

#: path, kind, size, mode, sha256, stamp
SentFile = Tuple[str, str, int, int, str, str]
_T = TypeVar("_T")


def prove(
    tree: DirfdTree, items: Iterable[StagedPath], stopped: Callable[[], bool]
) -> Tuple[Dict[str, str], Dict[str, str]]:
    """Read back what a batch has put in its place: (stamps, why not) by path. Each file is
    opened by its path from the root, and read after its rename."""
    proof: Dict[str, str] = {}
    differ: Dict[str, str] = {}
    for item in items:
        if stopped():
            break
        state = item.result.state if item.result is not None else None
        if item.kind == DELETE or state not in _IN_PLACE:
            continue
        found, why = _read(tree, item.raw)
        if found is None:
            differ[item.path] = why
        elif found.digest != item.digest:
            differ[item.path] = "content"
        else:
            proof[item.path] = found.stamp
    return proof, differ


def _read(tree: DirfdTree, path: bytes) -> Tuple[Optional[file_digest.DigestReader], str]:
    """(what is there, "") or (None, why not)."""
    try:
        fd, name = tree.find(path)
        return file_digest.read(fd, name), ""
    except (OSError, Blocked, file_digest.NotContent) as error:
        return None, _why(error)


def _why(error: Exception) -> str:
    """The reason for which a path can't be read, in a word of PROTOCOL.md."""
    if isinstance(error, FileNotFoundError) or (isinstance(error, Blocked) and not error.is_link):
        return ABSENT
    return f"unreadable: {error.strerror}" if isinstance(error, OSError) else "kind"


def _for_a_moment(work: Callable[[_T], None], todo: Iterator[_T]) -> bool:
    """Do some of it; False once all is done."""
    end = time.monotonic() + SLICE_S
    for one in todo:
        work(one)
        if time.monotonic() > end:
            return True
    return False


class Verification:
    """One call of `mirror.verify`, in slices."""

    def __init__(self, tree: DirfdTree, files: Iterable[SentFile]) -> None:
        self.differ: Dict[str, str] = {}
        self.stamps: Dict[str, str] = {}
        self._tree = tree
        self._files = iter(files)

    def go_on(self) -> bool:
        """Check for a moment; False once all is checked."""
        return _for_a_moment(self._check, self._files)

    def _check(self, file: SentFile) -> None:
        try:
            why = self._look(*file)
        except (OSError, Blocked, file_digest.NotContent) as error:
            why = _why(error)
        if why is not None:
            self.differ[file[0]] = why

    def _look(
        self, path: str, kind: str, size: int, mode: int, digest: str, stamp: str
    ) -> Optional[str]:
        fd, name = self._tree.find(path_of(path))
        state = lstat(fd, name)
        if state is None:
            return ABSENT
        if _kind(state) != kind:
            return "kind"
        differs = kind != LINK and _mode(state) != mode & ~(stat.S_ISGID if kind == DIR else 0)
        if kind == DIR:
            return "mode" if differs else None
        if not stamp or stamp_of(state) != stamp:
            if state.st_size != size:
                return "content"
            found = file_digest.read(fd, name)
            if found.digest != digest:
                return "content"
            self.stamps[path] = found.stamp
        return "mode" if differs else None


def _kind(state: os.stat_result) -> str:
    kinds = {stat.S_IFREG: "f", stat.S_IFLNK: LINK, stat.S_IFDIR: DIR}
    return kinds.get(stat.S_IFMT(state.st_mode), "")


def _mode(state: os.stat_result) -> int:
    mode = stat.S_IMODE(state.st_mode)
    # See publish.py: the directory's own.
    return mode & ~stat.S_ISGID if stat.S_ISDIR(state.st_mode) else mode


class Cleaning:
    """Removes what batches that were never finished have left, in these directories."""

    def __init__(self, tree: DirfdTree, files: Iterable[SentFile], alive: Iterable[str]) -> None:
        """alive: the nonces of open channels, whose staged files stay."""
        self.cleaned = 0
        self._tree = tree
        self._alive = tuple(os.fsencode(f"{PART_PREFIX}{nonce}-") for nonce in alive)
        self._directories = iter(_directories(files))

    def go_on(self) -> bool:
        """Clean for a moment; False once all is clean."""
        return _for_a_moment(self._clean, self._directories)

    def _clean(self, path: bytes) -> None:
        with contextlib.suppress(OSError, Blocked):
            way = self._tree.directory(path)
            fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=way)
            try:
                for name in names(fd):
                    if name.startswith(PART_PREFIX.encode()) and not name.startswith(self._alive):
                        remove_all(fd, name)
                        self.cleaned += 1
            finally:
                os.close(fd)


def _directories(files: Iterable[SentFile]) -> Iterator[bytes]:
    """The root, the directories that are named, and all that are above something named."""
    seen: Set[bytes] = {b""}
    yield b""
    for path, kind, *_ in files:
        raw = path_of(path)
        way = raw if kind == DIR else split(raw)[0]
        while way not in seen:
            seen.add(way)
            yield way
            way = split(way)[0]


def differing(tree: DirfdTree, expected: Dict[str, Optional[str]]) -> List[str]:
    """Paths whose sha256 (None: absent) is not the expected one."""
    differ = []
    for path, digest in expected.items():
        found, _ = _read(tree, path_of(path))
        if (found.digest if found is not None else None) != digest:
            differ.append(path)
    return differ
