"""The mirror's files as this node reads them: the proof of a batch, checks of all that was sent,
and the temporaries that a crash left.
"""

import contextlib
import os
import stat
import time
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Optional, Set, Tuple

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
    except FileNotFoundError:
        return None, ABSENT
    except Blocked as error:
        return None, "kind" if error.is_link else ABSENT
    except file_digest.NotContent:
        return None, "kind"
    except OSError as error:
        return None, f"unreadable: {error.strerror}"


class Verification:
    """One call of `mirror.verify`, in slices. files: [path, kind, size, mode, sha256, stamp]."""

    def __init__(self, tree: DirfdTree, files: Iterable[List[Any]]) -> None:
        self.differ: Dict[str, str] = {}
        self.stamps: Dict[str, str] = {}
        self._tree = tree
        self._files = iter(files)

    def go_on(self) -> bool:
        """Check for a moment; False once all is checked."""
        end = time.monotonic() + SLICE_S
        for file in self._files:
            self._check(*file)
            if time.monotonic() > end:
                return True
        return False

    def _check(self, path: str, kind: str, size: int, mode: int, digest: str, stamp: str) -> None:
        try:
            why = self._look(path, kind, size, mode, digest, stamp)
        except FileNotFoundError:
            why = ABSENT
        except Blocked as error:
            why = "kind" if error.is_link else ABSENT
        except OSError as error:
            why = f"unreadable: {error.strerror}"
        if why is not None:
            self.differ[path] = why

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
            found = _content(fd, name)
            if found.digest != digest:
                return "content"
            self.stamps[path] = found.stamp
        return "mode" if differs else None


def _content(fd: int, name: bytes) -> file_digest.DigestReader:
    try:
        return file_digest.read(fd, name)
    except file_digest.NotContent:
        raise OSError(0, "it changes its kind while it is read") from None


def _kind(state: os.stat_result) -> str:
    kinds = {stat.S_IFREG: "f", stat.S_IFLNK: LINK, stat.S_IFDIR: DIR}
    return kinds.get(stat.S_IFMT(state.st_mode), "")


def _mode(state: os.stat_result) -> int:
    mode = stat.S_IMODE(state.st_mode)
    # See publish.py: the directory's own.
    return mode & ~stat.S_ISGID if stat.S_ISDIR(state.st_mode) else mode


class Cleaning:
    """Removes what batches that were never finished have left, in these directories."""

    def __init__(self, tree: DirfdTree, files: Iterable[List[Any]], alive: Collection[str]) -> None:
        """alive: the nonces of open channels, whose staged files stay."""
        self.cleaned = 0
        self._tree = tree
        self._alive = tuple(os.fsencode(f"{PART_PREFIX}{nonce}-") for nonce in alive)
        self._directories = iter(_directories(files))

    def go_on(self) -> bool:
        """Clean for a moment; False once all is clean."""
        end = time.monotonic() + SLICE_S
        for path in self._directories:
            with contextlib.suppress(OSError, Blocked):
                self._clean(path)
            if time.monotonic() > end:
                return True
        return False

    def _clean(self, path: bytes) -> None:
        way = self._tree.directory(path)
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=way)
        try:
            for name in names(fd):
                if name.startswith(PART_PREFIX.encode()) and not name.startswith(self._alive):
                    remove_all(fd, name)
                    self.cleaned += 1
        finally:
            os.close(fd)


def _directories(files: Iterable[List[Any]]) -> Iterator[bytes]:
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
