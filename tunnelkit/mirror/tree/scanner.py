"""Scan of the local tree: one walk by stat, and digests of single files.

Paths are relative to the root, `/`-separated `str`. Bytes that are not UTF-8 travel as surrogates
(PEP 383), so every name is exact.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tunnelkit.mirror.api import MirrorHalted
from tunnelkit.mirror.tree.ignore import GITIGNORE, TKIGNORE, VENV_MARK, IgnoreRules, read_rules

FILE, DIR, LINK = "f", "d", "l"

#: Files that decide what is mirrored, whether they are mirrored themselves or not.
DECIDING = (GITIGNORE, TKIGNORE, VENV_MARK)

_CHUNK_BYTES = 1 << 20
_KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: DIR, stat.S_IFLNK: LINK}


def kept_mode(mode: int) -> int:
    """Return the bits of a file's mode that the mirror keeps.

    With a umask of 0002 every local file is writable for a group, which on a cluster may be a whole
    department. setuid, setgid and sticky are not kept either.
    """
    return mode & 0o755


class Entry(NamedTuple):
    """One local path as lstat saw it.

    mode: the permission bits that the mirror keeps.
    size: in bytes, 0 for directories.
    """

    kind: str
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @staticmethod
    def of(info: os.stat_result) -> Entry | None:
        """Return the entry, or None for a socket, fifo or device, which are not mirrored."""
        kind = _KINDS.get(stat.S_IFMT(info.st_mode))
        if kind is None:
            return None
        mode = kept_mode(info.st_mode)
        if kind == DIR:
            # Its times and size move with every file saved inside; they say nothing.
            return Entry(DIR, mode, 0, 0, 0, 0)
        if kind == LINK:
            mode = 0
        return compact(kind, mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)


#: One object for each mode: a number above 256 is an object wherever it is read.
_MODES = {mode: mode for mode in range(0o1000)}


def compact(kind: str, mode: int, size: int, mtime_ns: int, ctime_ns: int, inode: int) -> Entry:
    """Make an entry of as few objects as it can have: a session keeps one for each path."""
    if ctime_ns == mtime_ns:
        ctime_ns = mtime_ns
    return Entry(kind, _MODES.get(mode, mode), size, mtime_ns, ctime_ns, inode)


@dataclass(slots=True)
class Scan:
    """The tree at one moment.

    unreadable: directories that could not be listed, with the reason.
    rules, children: by directory, "" or "a/b/". `children` are paths in `entries`, or of
        directories that were scanned and left out; in a dict, as a set takes four times the memory.
    kinds: the kinds of entries that the scan collects.
    """

    started_ns: int
    entries: dict[str, Entry] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    rules: dict[str, IgnoreRules] = field(default_factory=dict)
    children: dict[str, dict[str, None]] = field(default_factory=dict)
    kinds: Collection[str] = (FILE, DIR, LINK)
    duration_s: float = 0.0


#: Number of new paths that are reported together.
_FOUND_PATHS = 500

#: (root, entries, scanned paths; None: all)
OnLook = Callable[[str, Mapping[str, Entry], Collection[str] | None], None]
#: called with new paths while the scan goes on
Found = Callable[[list[str]], None]


class Scanner:
    """Walks one root. Not thread-safe: one scan or update at a time.

    It remembers which names are ignored while the ignore files stay the same: matching costs far
    more than stat. A new scan shares its paths, and the entries that are as they were, with the one
    before, as both are in memory for a while.

    on_look: called with the root, the entries and the scanned paths.
    kinds: all others are left out, as if they did not exist.
    """

    def __init__(
        self,
        root: str,
        rules: IgnoreRules,
        on_look: OnLook = lambda root, entries, looked: None,
        *,
        kinds: Collection[str] = (FILE, DIR, LINK),
    ) -> None:
        self.root = root
        self._rules = rules
        self._on_look = on_look
        self._kinds = kinds
        self._ignore_files: dict[str, tuple[bytes, bytes]] = {}
        #: "" for an ignored path, else the path, by path; with a "/" behind that of a directory.
        self._verdicts: dict[str, str] = {}
        #: The entries of the latest scan.
        self._entries: Mapping[str, Entry] = {}
        #: True once the update under way has scanned the root
        self._root_seen = False

    def scan(self) -> Scan:
        """Walk the tree (blocking). Raises MirrorHalted if the root itself can't be listed."""
        begin = time.monotonic()
        scan = Scan(started_ns=time.time_ns(), kinds=self._kinds)
        seen: dict[str, tuple[bytes, bytes]] = {}
        verdicts: dict[str, str] = {}
        self._walk(scan, "", self._rules, seen, verdicts)
        self._ignore_files, self._verdicts, self._entries = seen, verdicts, scan.entries
        self._on_look(self.root, scan.entries, None)
        scan.duration_s = time.monotonic() - begin
        return scan

    def update(
        self, scan: Scan, paths: Collection[str], found: Found | None = None
    ) -> tuple[Scan, set[str]]:
        """Scan these paths again, and everything in those that are directories (blocking).

        Changes `scan` in place, to what a full scan would find if nothing else has changed since,
        and returns it. If a path decides over others (an ignore file, the mark of a virtual
        environment, the root), a new scan is returned. Also returns all paths that were scanned,
        have appeared or have gone.

        found: called with many new paths as soon as they are in `scan`, a directory before its
            content. Raises MirrorHalted as `scan` does.
        """
        if any(path.rpartition("/")[2] in DECIDING or not path for path in paths):
            fresh = self.scan()
            return fresh, {*paths, *scan.entries, *fresh.entries}
        begin = time.monotonic()
        scan.started_ns = time.time_ns()
        looked: set[str] = set()
        sound: dict[str, bool] = {}
        self._root_seen = False
        # A directory comes before what is in it, and speaks for that.
        for path in sorted(paths):
            top = self._known(scan, path, sound)
            if top not in looked:
                self._look(scan, top, looked, found)
            looked.add(path)
        self._on_look(self.root, scan.entries, looked)
        scan.duration_s = time.monotonic() - begin
        return scan, looked

    def _known(self, scan: Scan, path: str, sound: dict[str, bool]) -> str:
        """Return the path, or the topmost directory above it that must be scanned first.

        That is a directory that is new, or is none any more.
        """
        end = path.find("/")
        while end > 0:
            if path[: end + 1] not in scan.rules or not self._is_dir(path[:end], sound):
                return path[:end]
            end = path.find("/", end + 1)
        return path

    def _is_dir(self, path: str, sound: dict[str, bool]) -> bool:
        found = sound.get(path)
        if found is None:
            try:
                found = stat.S_ISDIR(os.lstat(os.path.join(self.root, path)).st_mode)
            except OSError:
                found = False
            sound[path] = found
        return found

    def _look(self, scan: Scan, path: str, looked: set[str], found: Found | None) -> None:
        """One path as it is now, with all below."""
        cut = path.rfind("/") + 1
        base, name = path[:cut], path[cut:]
        try:
            info = os.lstat(os.path.join(self.root, path))
        except OSError:
            self._see_root()
            self._drop(scan, base, name, looked)
            return
        self._drop(scan, base, name, looked)
        is_dir = stat.S_ISDIR(info.st_mode)
        rules = scan.rules[base]
        path = self._kept(path, name, is_dir, rules, self._verdicts)
        if not path:
            return
        entry = Entry.of(info)
        if entry is None or entry.kind not in self._kinds:
            return
        scan.entries[path] = entry
        scan.children[base][path] = None
        if is_dir:
            inner = path + "/"
            self._walk(scan, inner, rules, self._ignore_files, self._verdicts, looked, found)

    def _see_root(self) -> None:
        """Something is missing: is it the root that has gone? Asked once an update."""
        if self._root_seen:
            return
        try:
            with os.scandir(self.root):
                self._root_seen = True
        except OSError as error:
            raise root_lost(self.root, error) from error

    def _drop(self, scan: Scan, base: str, name: str, looked: set[str]) -> None:
        """Forget a path with all below."""
        stack = [base + name]
        scan.children[base].pop(stack[0], None)
        while stack:
            path = stack.pop()
            looked.add(path)
            scan.entries.pop(path, None)
            scan.unreadable.pop(path, None)
            inner = path + "/"
            scan.rules.pop(inner, None)
            stack.extend(scan.children.pop(inner, ()))

    def _walk(
        self,
        scan: Scan,
        top: str,
        above: IgnoreRules,
        seen: dict[str, tuple[bytes, bytes]],
        verdicts: dict[str, str],
        looked: set[str] | None = None,
        found: Found | None = None,
    ) -> None:
        """All that is in the directory `top` ("" or "a/b/"), whose parent has these rules."""
        stack, news = [(top, above)], list[str]()
        while stack:
            base, rules = stack.pop()
            directory = os.path.join(self.root, base) if base else self.root
            try:
                with os.scandir(directory) as listing:
                    children = list(listing)
            except OSError as error:
                if not base:
                    raise root_lost(self.root, error) from error
                if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    scan.unreadable[base[:-1]] = error.strerror or str(error)
                continue
            above, rules = rules, self._enter(base, directory, children, rules, seen)
            scan.rules[base] = rules
            paths = scan.children[base] = {}
            if base and any(child.name == VENV_MARK for child in children):
                closed = above.venv(base[:-1])
                if closed is not None:
                    del scan.entries[base[:-1]]
                    scan.rules[base] = replace(rules, closed=closed)
                    continue
            if found is not None:
                news.append(base[:-1])
            for child in children:
                is_dir = child.is_dir(follow_symlinks=False)
                path = self._kept(base + child.name, child.name, is_dir, rules, verdicts)
                if not path:
                    continue
                try:
                    entry = Entry.of(child.stat(follow_symlinks=False))
                except OSError:
                    continue  # vanished since it was listed
                if entry is None or entry.kind not in self._kinds:
                    continue
                before = self._entries.get(path)
                scan.entries[path] = entry if before is None or before != entry else before
                paths[path] = None
                if looked is not None:
                    looked.add(path)
                if entry.kind == DIR:
                    stack.append((path + "/", rules))
                elif found is not None:
                    news.append(path)
            if found is not None and len(news) >= _FOUND_PATHS:
                found(news)
                news = []

    def _kept(
        self, path: str, name: str, is_dir: bool, rules: IgnoreRules, verdicts: dict[str, str]
    ) -> str:
        """Return the path, each time the same object; "" if it is ignored."""
        if rules.closed is not None:
            return ""  # not to be remembered: it hangs on the mark, which can go
        key = path + "/" if is_dir else path
        kept = self._verdicts.get(key)
        if kept is None:
            kept = "" if rules.ignored(path, name, is_dir) else path
        verdicts[key if is_dir or not kept else kept] = kept
        return kept

    def _enter(
        self,
        base: str,
        directory: str,
        children: Iterable[os.DirEntry[str]],
        rules: IgnoreRules,
        seen: dict[str, tuple[bytes, bytes]],
    ) -> IgnoreRules:
        texts = {
            child.name: read_rules(os.path.join(directory, child.name))
            for child in children
            if child.name in (GITIGNORE, TKIGNORE)
        }
        found = (texts.get(GITIGNORE, b""), texts.get(TKIGNORE, b""))
        if self._ignore_files.get(base, (b"", b"")) != found:
            # Changed rules: decide again about everything below.
            stale = [key for key in self._verdicts if key.startswith(base)]
            for key in stale:
                del self._verdicts[key]
        if any(found):
            seen[base] = found
        else:
            seen.pop(base, None)
        return rules.enter(base, *found)


def root_lost(root: str, error: OSError) -> MirrorHalted:
    """Return the error for a local root that can't be read any more."""
    return MirrorHalted(
        f"the mirrored directory {root} can't be read",
        cause=f"{error.strerror or error}; nothing was deleted on the cluster",
        hint="bring it back (remount it?), then `tk sync`; or `tk down`",
    )


def lstat(root: str, path: str) -> Entry | None:
    """One path as it is now; None if it is gone or is nothing that is mirrored."""
    try:
        return Entry.of(os.lstat(os.path.join(root, path)))
    except (FileNotFoundError, NotADirectoryError):
        return None


def digest(root: str, path: str, kind: str) -> str:
    """sha256 hex of a file's content, or of a symlink's target. Raises OSError."""
    full = os.path.join(root, path)
    if kind == LINK:
        return hashlib.sha256(os.fsencode(os.readlink(full))).hexdigest()
    # O_NOFOLLOW, O_NONBLOCK: it may have become a symlink or a fifo since the scan.
    fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as stream:
        sha = hashlib.sha256()
        while chunk := stream.read(_CHUNK_BYTES):
            sha.update(chunk)
    return sha.hexdigest()


def racy(entry: Entry, seen_ns: int) -> bool:
    """Return True if a write after `seen_ns` could have left the same time stamps.

    Time stamps move in ticks of the kernel's clock (up to 10 ms), on some file systems in steps of
    a second or two. A file younger than a step must be read again.
    """
    coarse = entry.ctime_ns % 1_000_000_000 == 0
    window_ns = 2_500_000_000 if coarse else 50_000_000
    return entry.kind != DIR and entry.ctime_ns >= seen_ns - window_ns
