"""One batch of the mirror while it arrives: written beside its place, not visible yet.

A file is staged as a temporary in its own directory. A directory that is not there yet is
staged as a whole, with final names inside, to be published by one rename. Runs in the
channel's worker thread.
"""

import contextlib
import hashlib
import os
import stat
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from tunnelkit.agent.mirror.dirfd_tree import Blocked, DirfdTree, lstat, path_of, remove_all, split
from tunnelkit.agent.mirror.expectation import Expect, Verdict
from tunnelkit.mux.parcels import checked

#: All that is staged is named so; a crash leaves such names behind, see verify.py.
PART_PREFIX = ".tk-part-"

FILE, LINK, META, DELETE = "file", "link", "meta", "del"

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_WHOLE = "it did not arrive whole: it changed while it was sent"


class BadParcel(Exception):
    """A parcel that breaks the protocol."""


class PathOutcome(NamedTuple):
    """The outcome of a path that was no plain success."""

    state: str
    why: str = ""


class StagedPath:
    """One path of a batch: its final state, where that is staged, and its outcome."""

    __slots__ = (
        "digest",
        "expect",
        "fresh",
        "kind",
        "mode",
        "mtime_ns",
        "path",
        "raw",
        "result",
        "size",
        "staged_in",
        "staged_name",
        "unlike",
        "verdict",
    )

    def __init__(self, kind: str, header: Dict[str, object]) -> None:
        self.kind = kind
        self.path = checked(header["path"], str)
        self.raw = path_of(self.path)
        self.mode = checked(header.get("mode", 0), int) & 0o7777
        self.mtime_ns = checked(header.get("mtime_ns", 0), int)
        self.size = checked(header.get("size", 0), int)
        self.digest = str(header.get("sha256", ""))
        expect = header.get("expect")
        self.expect: Expect = None if expect is None else checked(expect, dict)
        self.unlike = str(header.get("unlike", "conflict"))
        #: Staged as that name in that directory; "" if nothing is.
        self.staged_in = b""
        self.staged_name = b""
        self.fresh: Optional[NewDirectory] = None
        self.verdict: Optional[Verdict] = None
        self.result: Optional[PathOutcome] = None

    def fail(self, error: BaseException) -> None:
        """Record that the path can't get its final state."""
        self.result = failure(error)


class NewDirectory:
    """A directory that is not there yet, staged whole.

    path: its final path; staged: its path now; ways: the directories in it, staged by final path,
    parents first.
    """

    def __init__(self, path: bytes, staged: bytes) -> None:
        self.path = path
        self.staged = staged
        self.ways: Dict[bytes, bytes] = {path: staged}
        self.published = False
        #: It was there after all: what was in this went there, one by one.
        self.merged = False


class Directory(NamedTuple):
    """A directory that the batch names. sets_mode: if it is there already, too."""

    path: str
    mode: int
    sets_mode: bool


class StagedBatch:
    """The part of a batch that has arrived.

    `publish.publish` makes it visible; `discard` at the end removes what is still staged.

    tree: of the root; name: gives a new name for a temporary; replaced: names the directory for
    files that are replaced.
    """

    def __init__(self, tree: DirfdTree, name: Callable[[], bytes], replaced: str) -> None:
        self.tree = tree
        self.replaced = path_of(replaced) if replaced else b""
        if b"/" in self.replaced:
            raise BadParcel(f"no name for a directory: {replaced!r}")
        self.items: Dict[bytes, StagedPath] = {}
        self.directories: Dict[bytes, Directory] = {}
        self.rmdirs: Dict[bytes, None] = {}
        self.fresh: List[NewDirectory] = []
        self.results: Dict[str, PathOutcome] = {}
        self._name = name
        #: Where a directory is staged, and in what; itself, if it is there.
        self._places: Dict[bytes, Tuple[bytes, Optional[NewDirectory]]] = {}
        self._writing: Optional[_Writing] = None

    # -- what arrives -----------------------------------------------------

    def directory(self, header: Dict[str, object], data: bytes) -> None:
        """A directory: made if it is missing."""
        path = checked(header["path"], str)
        raw = path_of(path)
        sets_mode = bool(header.get("new") or header.get("chmod"))
        mode = checked(header["mode"], int) & 0o7777
        self.directories[raw] = Directory(path, mode, sets_mode)
        try:
            _, fresh = self._place(raw)
            if fresh is None and header.get("new"):
                self.results[path] = PathOutcome("same")
        except (OSError, Blocked) as error:
            self.results[path] = failure(error)

    def file(self, header: Dict[str, object], data: bytes) -> None:
        """A file, or the first piece of it."""
        item = self._add(FILE, header)
        try:
            if header.get("more"):
                self._writing = _Writing(item, self._create(item))
                self._writing.write(data)
            elif len(data) != item.size or hashlib.sha256(data).hexdigest() != item.digest:
                item.result = PathOutcome("failed", _NOT_WHOLE)
            else:
                self._write_whole(item, data)
        except (OSError, Blocked) as error:
            self._give_up(item, error)

    def piece(self, header: Dict[str, object], data: bytes) -> None:
        """A further piece of the file begun last."""
        writing = self._writing
        if writing is None:
            # Failed already; the rest of it was on its way.
            return
        try:
            writing.write(data)
            if header.get("last"):
                self._writing = None
                writing.finish()
        except OSError as error:
            self._give_up(writing.item, error)

    def drop(self, header: Dict[str, object], data: bytes) -> None:
        """The file begun last is not to be."""
        if self._writing is not None:
            item = self._writing.item
            self._stop_writing()
            self._remove(item)
            self.items.pop(item.raw, None)

    def link(self, header: Dict[str, object], data: bytes) -> None:
        """A symlink."""
        item = self._add(LINK, header)
        try:
            target = str(header["target"]).encode("utf-8", "surrogateescape")
            if hashlib.sha256(target).hexdigest() != item.digest:
                item.result = PathOutcome("failed", _NOT_WHOLE)
                return
            fd = self._stage(item)
            os.symlink(target, item.staged_name, dir_fd=fd)
            times = (item.mtime_ns, item.mtime_ns)
            os.utime(item.staged_name, ns=times, dir_fd=fd, follow_symlinks=False)
        except (OSError, Blocked) as error:
            self._give_up(item, error)

    def meta(self, header: Dict[str, object], data: bytes) -> None:
        """A mode and mtime for content that is there."""
        self._add(META, header)

    def delete(self, header: Dict[str, object], data: bytes) -> None:
        """A file or symlink that is to go."""
        self._add(DELETE, header)

    def rmdir(self, header: Dict[str, object], data: bytes) -> None:
        """A directory that is to go if it is empty."""
        self.rmdirs[path_of(header["path"])] = None

    # -- its end ----------------------------------------------------------

    def complete(self) -> None:
        """All has arrived. A file that has not, fails."""
        if self._writing is not None:
            item = self._writing.item
            self._stop_writing()
            self._remove(item)
            item.result = PathOutcome("failed", _NOT_WHOLE)

    def discard(self) -> None:
        """Remove what is staged and was not published."""
        self._stop_writing()
        for item in self.items.values():
            self._remove(item)
        for fresh in self.fresh:
            if not fresh.published:
                fresh.published = True
                try:
                    fd, name = self.tree.find(fresh.staged)
                    remove_all(fd, name)
                except (OSError, Blocked):
                    pass

    # -- inside -----------------------------------------------------------

    def _add(self, kind: str, header: Dict[str, object]) -> StagedPath:
        item = StagedPath(kind, header)
        for path, mode, sets_mode in checked(header.get("above", []), list):
            wanted = Directory(path, int(mode) & 0o7777, bool(sets_mode))
            self.directories.setdefault(path_of(path), wanted)
        if self._writing is not None:
            self.complete()
        before = self.items.get(item.raw)
        if before is not None:
            self._remove(before)
            if before.staged_name:
                raise BadParcel(f"{item.path!r} comes twice")
        self.items[item.raw] = item
        return item

    def _create(self, item: StagedPath) -> int:
        fd = self._stage(item)
        # Mostly it has its mode at once then. Some file systems let nobody write what is
        # read-only.
        mode = item.mode if item.mode & 0o7200 == 0o200 else 0o600
        return os.open(item.staged_name, _CREATE, mode, dir_fd=fd)

    def _write_whole(self, item: StagedPath, data: bytes) -> None:
        fd = self._create(item)
        try:
            if data:
                _write(fd, data)
            _dress(fd, item)
        finally:
            os.close(fd)

    def _stage(self, item: StagedPath) -> int:
        """Choose where it is staged; the descriptor of that directory."""
        parent, name = split(item.raw)
        where, item.fresh = self._places.get(parent) or self._place(parent)
        fd = self.tree.directory(where)
        item.staged_in = where
        item.staged_name = name if item.fresh is not None else self._name()
        return fd

    def _place(self, path: bytes) -> Tuple[bytes, Optional[NewDirectory]]:
        """The place where that directory is filled; it is made there if it does not exist."""
        if not self.fresh:
            # Mostly it exists, and one open shows that: one check instead of one for each
            # component.
            with contextlib.suppress(OSError, Blocked):
                self.tree.directory(path)
                self._places[path] = path, None
                return path, None
        place: Tuple[bytes, Optional[NewDirectory]] = (b"", None)
        end = 0
        while end < len(path):
            end = path.find(b"/", end + 1)
            if end < 0:
                end = len(path)
            place = self._places.get(path[:end]) or self._new_place(path[:end], *place)
        return place

    def _new_place(
        self, path: bytes, above: bytes, fresh: Optional[NewDirectory]
    ) -> Tuple[bytes, Optional[NewDirectory]]:
        fd = self.tree.directory(above)
        _, name = split(path)
        staged = above + b"/" + name if above else name
        if fresh is not None:
            os.mkdir(name, 0o700, dir_fd=fd)
            fresh.ways[path] = staged
        else:
            state = lstat(fd, name)
            if state is None or not stat.S_ISDIR(state.st_mode):
                part = self._name()
                os.mkdir(part, 0o700, dir_fd=fd)
                staged = above + b"/" + part if above else part
                fresh = NewDirectory(path, staged)
                self.fresh.append(fresh)
        self._places[path] = staged, fresh
        return staged, fresh

    def _give_up(self, item: StagedPath, error: BaseException) -> None:
        self._stop_writing()
        self._remove(item)
        item.fail(error)

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def _remove(self, item: StagedPath) -> None:
        name, item.staged_name = item.staged_name, b""
        if name and not (item.fresh is not None and item.fresh.published):
            try:
                os.unlink(name, dir_fd=self.tree.directory(item.staged_in))
            except (OSError, Blocked):
                pass


class _Writing:
    """A file that comes in pieces. It owns the descriptor."""

    def __init__(self, item: StagedPath, fd: int) -> None:
        self.item = item
        self._fd = fd
        self._sum = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        _write(self._fd, data)
        self._sum.update(data)
        self._size += len(data)

    def finish(self) -> None:
        """That was the last piece. Raises OSError if it is not what was announced."""
        try:
            if self._size != self.item.size or self._sum.hexdigest() != self.item.digest:
                raise OSError(0, _NOT_WHOLE)
            _dress(self._fd, self.item)
        finally:
            self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def failure(error: BaseException) -> PathOutcome:
    """An error as what became of a path."""
    if isinstance(error, Blocked):
        return PathOutcome("blocked", str(error))
    return PathOutcome("failed", getattr(error, "strerror", None) or str(error))


def _write(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def _dress(fd: int, item: StagedPath) -> None:
    if stat.S_IMODE(os.fstat(fd).st_mode) != item.mode:
        os.fchmod(fd, item.mode)
    os.utime(fd, ns=(item.mtime_ns, item.mtime_ns))
