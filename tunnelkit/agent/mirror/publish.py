"""A staged batch becomes visible: one generation, quickly, and nobody's edit is lost.

First every expectation is checked. Then, with the gate closed: what is in the way of a change
of kind goes, the new comes by renames, the rest of the deletes, empty directories, modes.
"""

import contextlib
import os
import stat
from typing import Callable, ContextManager, Dict, Iterable, List, Optional, Set

from tunnelkit.agent.mirror import file_digest
from tunnelkit.agent.mirror.atomic_rename import exchange, rename_new
from tunnelkit.agent.mirror.dirfd_tree import (
    Blocked,
    DirfdTree,
    is_that,
    lstat,
    remove_all,
    set_mode,
    stamp_of,
    text_of,
)
from tunnelkit.agent.mirror.expectation import ABSENT, DIRECTORY, OURS, SAME, THEIRS, Verdict, judge
from tunnelkit.agent.mirror.replaced_files import ReplacedFiles
from tunnelkit.agent.mirror.staging import (
    DELETE,
    LINK,
    META,
    NewDirectory,
    PathOutcome,
    StagedBatch,
    StagedPath,
    failure,
)

#: The number of tries for a file that changes all the time.
_TRIES = 5
#: The outcome for a directory that was thought new.
_THERE = PathOutcome("same")


def publish(batch: StagedBatch, root_fd: int, gate: ContextManager[None]) -> Dict[str, PathOutcome]:
    """Make it visible, as far as that goes: what was no plain success, by path."""
    tree, replaced = DirfdTree(root_fd), ReplacedFiles(root_fd, batch.replaced)
    try:
        work = _Publication(batch, tree, replaced)
        work.check()
        with gate:
            work.commit()
        return work.results()
    finally:
        tree.close()
        replaced.close()


class _Publication:
    """tree: walks again what was walked for the staging: a directory may be another by now."""

    def __init__(self, batch: StagedBatch, tree: DirfdTree, replaced: ReplacedFiles) -> None:
        self._batch = batch
        self._tree = tree
        self._replaced = replaced
        self._deletes: List[StagedPath] = []
        self._puts: List[StagedPath] = []
        #: Dealt with before their turn.
        self._done: Set[StagedPath] = set()
        self._results = dict(batch.results)

    def results(self) -> Dict[str, PathOutcome]:
        """By path, once all is done."""
        for item in self._batch.items.values():
            if item.result is not None:
                self._results[item.path] = item.result
        return self._results

    # -- before -----------------------------------------------------------

    def check(self) -> None:
        """Look at what is there now."""
        for item in self._batch.items.values():
            if item.result is not None:
                continue
            if item.fresh is None:
                self._judge(item)
            if item.result is None:
                (self._deletes if item.kind == DELETE else self._puts).append(item)

    def _judge(self, item: StagedPath) -> None:
        """Set the item's verdict, and its result where there is nothing to do."""
        link = item.kind == LINK
        try:
            fd, name = self._tree.find(item.raw)
            verdict = judge(fd, name, item.expect, item.digest, link=link)
        except FileNotFoundError:
            verdict = Verdict(ABSENT)
        except Blocked as error:
            if item.kind == DELETE and not error.is_link:
                verdict = Verdict(ABSENT)
            else:
                item.fail(error)
                return
        except OSError as error:
            item.fail(error)
            return
        item.verdict = verdict
        item.result = _decide(item, verdict)

    # -- the quick part ---------------------------------------------------

    def commit(self) -> None:
        """All that can be seen."""
        self._make_place()
        for fresh in self._batch.fresh:
            self._publish_fresh(fresh)
        for item in self._puts:
            if item.fresh is None:
                self._once(self._meta if item.kind == META else self._put, item)
        for item in self._deletes:
            self._once(self._delete, item)
        self._remove_directories(self._batch.rmdirs)
        self._set_modes()

    def _once(self, work: Callable[[StagedPath], None], item: StagedPath) -> None:
        if item in self._done or item.result is not None:
            return
        self._done.add(item)
        self._attempt(work, item)

    def _attempt(self, work: Callable[[StagedPath], None], item: StagedPath) -> None:
        try:
            work(item)
        except (OSError, Blocked) as error:
            item.fail(error)

    def _still(self, item: StagedPath) -> bool:
        """Check again, by stat alone, that what was judged is still there; if not, judge again.

        True if there is something to do.
        """
        fd, name = self._tree.find(item.raw)
        state = lstat(fd, name)
        assert item.verdict is not None
        if (stamp_of(state) if state is not None else "") != item.verdict.seen:
            self._judge(item)
        return item.result is None

    def _put(self, item: StagedPath) -> None:
        for _ in range(_TRIES):
            if not self._still(item) or self._put_once(item):
                return
            self._judge(item)
        raise OSError(0, "somebody on the cluster is writing it at this moment")

    def _put_once(self, item: StagedPath) -> bool:
        """False: what is there is not what was seen."""
        verdict = item.verdict
        assert verdict is not None
        stays = item.unlike == "backup" or item.expect is None
        if verdict.what == DIRECTORY:
            raise OSError(0, _full_directory(item.raw))
        if verdict.what == SAME and stays:
            item.result = self._dress(item)
            return True
        if verdict.what == THEIRS:
            self._replaced.keep(self._tree, item.raw, gone=False)
            self._rename(item)
            item.result = PathOutcome("replaced", verdict.why)
            return True
        return self._take_place(item, verdict)

    def _take_place(self, item: StagedPath, verdict: Verdict) -> bool:
        """Rename it to its place, unless something else is there than was seen: False."""
        source = self._batch.tree.directory(item.staged_in)
        fd, name = self._tree.find(item.raw)
        try:
            if verdict.what == ABSENT:
                if rename_new(source, item.staged_name, fd, name):
                    item.staged_name = b""
                    return True
            elif exchange(source, item.staged_name, fd, name):
                # What was there has the temporary's name now, and goes with the batch.
                if is_that(lstat(source, item.staged_name), verdict.seen):
                    return True
                exchange(source, item.staged_name, fd, name)
                return False
        except (FileExistsError, FileNotFoundError):
            return False
        self._rename(item)
        return True

    def _dress(self, item: StagedPath) -> PathOutcome:
        """The content is there already; the rest, as far as it is ours to set."""
        if item.kind != LINK:
            fd, name = self._tree.find(item.raw)
            try:
                set_mode(fd, name, item.mode, item.mtime_ns)
            except PermissionError as error:
                return PathOutcome("same", f"its mode can't be set: {error.strerror}")
        return PathOutcome("same")

    def _rename(self, item: StagedPath) -> None:
        """Rename the staged file to its final path."""
        source = self._batch.tree.directory(item.staged_in)
        fd, name = self._tree.find(item.raw)
        os.rename(item.staged_name, name, src_dir_fd=source, dst_dir_fd=fd)
        item.staged_name = b""

    def _meta(self, item: StagedPath) -> None:
        if not self._still(item):
            return
        fd, name = self._tree.find(item.raw)
        verdict = item.verdict
        assert verdict is not None
        left = (item.expect or {}).get("digests")
        if not verdict.digest and left != [item.digest]:
            try:
                found = file_digest.read(fd, name)
            except file_digest.NotContent:
                item.result = PathOutcome("absent")
                return
            if found.digest != item.digest:
                item.result = PathOutcome("absent", "the content there is another")
                return
        set_mode(fd, name, item.mode, item.mtime_ns)

    def _delete(self, item: StagedPath) -> None:
        assert item.verdict is not None
        if item.verdict.what == ABSENT or not self._still(item):
            return
        if item.verdict.what == ABSENT:
            return
        if item.verdict.what == THEIRS:
            self._replaced.keep(self._tree, item.raw, gone=True)
            item.result = PathOutcome("replaced", item.verdict.why)
            return
        fd, name = self._tree.find(item.raw)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)

    # -- what is in the way -----------------------------------------------

    def _make_place(self) -> None:
        for fresh in self._batch.fresh:
            item = self._batch.items.get(fresh.path)
            if item is not None and item.kind == DELETE:
                self._once(self._delete, item)
        for item in self._puts:
            if item.verdict is not None and item.verdict.what == DIRECTORY:
                self._attempt(self._clear_directory, item)

    def _clear_directory(self, put: StagedPath) -> None:
        """A file replaces a directory: remove that if it holds nothing but tk's own files."""
        below = put.raw + b"/"
        for item in self._deletes:
            if item.raw.startswith(below):
                self._once(self._delete, item)
        self._remove_directories([raw for raw in self._batch.rmdirs if raw.startswith(below)])
        fd, name = self._tree.find(put.raw)
        try:
            os.rmdir(name, dir_fd=fd)
        except FileNotFoundError:
            pass
        except OSError:
            raise OSError(0, _full_directory(put.raw)) from None
        self._tree.forget(put.raw)
        put.verdict = Verdict(ABSENT)

    def _remove_directories(self, paths: Iterable[bytes]) -> None:
        for raw in sorted(paths, key=lambda path: -path.count(b"/")):
            if raw in self._batch.directories:
                continue
            try:
                fd, name = self._tree.find(raw)
                os.rmdir(name, dir_fd=fd)
            except (OSError, Blocked):
                continue
            self._tree.forget(raw)

    # -- new directories --------------------------------------------------

    def _publish_fresh(self, fresh: NewDirectory) -> None:
        try:
            self._set_fresh_modes(fresh)
            source, part = self._batch.tree.find(fresh.staged)
            fd, name = self._tree.find(fresh.path)
            try:
                os.rename(part, name, src_dir_fd=source, dst_dir_fd=fd)
            except NotADirectoryError:
                state = lstat(fd, name)
                is_link = state is not None and stat.S_ISLNK(state.st_mode)
                raise Blocked(fresh.path, is_link=is_link) from None
            except OSError:
                state = lstat(fd, name)
                if state is None or not stat.S_ISDIR(state.st_mode):
                    raise
                self._merge(fresh)
                return
        except (OSError, Blocked) as error:
            self._fresh_failed(fresh, failure(error))
            return
        fresh.published = True
        for item in self._members(fresh):
            item.staged_name = b""
        self._batch.tree.forget(fresh.staged)
        self._tree.forget(fresh.path)

    def _members(self, fresh: NewDirectory) -> List[StagedPath]:
        return [item for item in self._puts if item.fresh is fresh and item.result is None]

    def _set_fresh_modes(self, fresh: NewDirectory) -> None:
        for path, staged in reversed(list(fresh.ways.items())):
            wanted = self._batch.directories.get(path)
            if wanted is not None:
                fd, name = self._batch.tree.find(staged)
                _set_directory_mode(fd, name, wanted.mode)

    def _fresh_failed(self, fresh: NewDirectory, result: PathOutcome) -> None:
        for item in self._members(fresh):
            item.result = result
        for path in fresh.ways.keys() & self._batch.directories.keys():
            self._results.setdefault(self._batch.directories[path].path, result)

    def _merge(self, fresh: NewDirectory) -> None:
        """Somebody has made that directory meanwhile: file by file, with all that is checked
        for a file whose directory was there."""
        for path, staged in fresh.ways.items():
            above, part = self._batch.tree.find(staged)
            set_mode(above, part, 0o700)
            fd, name = self._tree.find(path)
            if lstat(fd, name) is None:
                os.mkdir(name, 0o700, dir_fd=fd)
            elif path in self._batch.directories:
                self._results[self._batch.directories[path].path] = _THERE
        for item in self._members(fresh):
            item.fresh = None
            self._judge(item)
            self._once(self._put, item)
        above, part = self._batch.tree.find(fresh.staged)
        for item in self._batch.items.values():
            if item.fresh is None and item.staged_in.startswith(fresh.staged):
                item.staged_name = b""
        remove_all(above, part)
        fresh.published = fresh.merged = True

    # -- the rest ---------------------------------------------------------

    def _set_modes(self) -> None:
        """Deepest first: a directory that is closed by it hides no other."""
        whole = {path: fresh for fresh in self._batch.fresh for path in fresh.ways}
        wanted = self._batch.directories
        for raw in sorted(wanted, key=lambda path: -path.count(b"/")):
            one = wanted[raw]
            made = whole.get(raw)
            settled = not one.sets_mode if made is None else not made.merged
            if settled or self._results.get(one.path, _THERE) != _THERE:
                continue
            try:
                fd, name = self._tree.find(raw)
                _set_directory_mode(fd, name, one.mode)
            except (OSError, Blocked) as error:
                self._results[one.path] = failure(error)


def _decide(item: StagedPath, verdict: Verdict) -> Optional[PathOutcome]:
    """The outcome of a path at which nothing must be done."""
    if item.kind == DELETE and verdict.what == DIRECTORY:
        return PathOutcome("kept", "a directory is there now")
    if verdict.what == THEIRS and item.unlike != "backup":
        return PathOutcome("kept" if item.kind == DELETE else "conflict", verdict.why)
    if item.kind == META and verdict.what not in (OURS, SAME):
        return PathOutcome("absent")
    return None


def _full_directory(path: bytes) -> str:
    return f"on the cluster {text_of(path)} is a directory with files that tk didn't send"


def _set_directory_mode(dir_fd: int, name: bytes, mode: int) -> None:
    """A group's directory stays one: the bit that hands the group on is not the laptop's."""
    state = lstat(dir_fd, name)
    if state is None or not stat.S_ISDIR(state.st_mode):
        return
    mode |= state.st_mode & stat.S_ISGID
    if stat.S_IMODE(state.st_mode) != mode:
        set_mode(dir_fd, name, mode)
