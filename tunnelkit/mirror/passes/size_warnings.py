"""Warn before something big is sent: mostly it is a data set that should not be mirrored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tunnelkit.mirror.api import name_paths
from tunnelkit.mirror.tree.scanner import DIR, Entry
from tunnelkit.text_format import human_bytes

#: Warn above these sizes: of a single file, and of all that one pass has to send.
WARN_FILE_BYTES = 100_000_000
WARN_TREE_BYTES = 2_000_000_000
#: The warning names a subdirectory while it holds more than this part of its parent's bytes.
_MOST = 0.5
_GLOB = str.maketrans({char: f"\\{char}" for char in "\\*?[]"})


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """A warning that was given. path: relative to the root, "" for the whole tree."""

    path: str
    size_bytes: int
    text: str


class SizeWatch:
    """Checks the sizes before each pass. Calls `warn` once per path with one line."""

    def __init__(
        self,
        warn: Callable[[str], None],
        *,
        file_bytes: int = WARN_FILE_BYTES,
        tree_bytes: int = WARN_TREE_BYTES,
    ) -> None:
        self._warn = warn
        self._file_bytes = file_bytes
        self._tree_bytes = tree_bytes
        self._told: dict[str, SizeWarning] = {}
        self._news: list[str] = []

    def look(self, sends: Mapping[str, Entry], entries: Mapping[str, Entry]) -> None:
        """Warn about big files and about a big total.

        sends: the entries to send now.
        entries: all mirrored entries. A path that is gone or no longer big is forgotten, and would
            be warned about again.
        """
        for path, warned in list(self._told.items()):
            now = sum_of(entries) if not path else _size(entries.get(path))
            if now <= (self._file_bytes if path else self._tree_bytes):
                del self._told[warned.path]
        big = {path: one.size for path, one in sends.items() if one.size > self._file_bytes}
        for path in sorted(big, key=lambda path: (-big[path], path)):
            self._tell(path, big[path], file_line(path, big[path]))
        total = sum_of(sends)
        if total > self._tree_bytes:
            self._tell("", total, tree_line(sends, total))

    def current(self) -> tuple[str, ...]:
        """Return the warnings that still hold, the biggest first."""
        warned = sorted(self._told.values(), key=lambda one: -one.size_bytes)
        return tuple(one.text for one in warned)

    def news(self) -> list[str]:
        """Return the warnings since the last call."""
        news, self._news = self._news, []
        return news

    def _tell(self, path: str, size_bytes: int, text: str) -> None:
        if path not in self._told:
            self._told[path] = SizeWarning(path, size_bytes, text)
            self._news.append(text)
            self._warn(text)


def sum_of(entries: Mapping[str, Entry]) -> int:
    """Return the bytes of all files."""
    return sum(entry.size for entry in entries.values())


def _size(entry: Entry | None) -> int:
    return entry.size if entry is not None else 0


def file_line(path: str, size_bytes: int) -> str:
    """Return the warning for one file."""
    return f"{name_paths([path])} is big ({human_bytes(size_bytes)}); {_how(path)}"


def tree_line(sends: Mapping[str, Entry], total_bytes: int) -> str:
    """Return the warning for a big total. It names the directory that holds most of it."""
    path = heaviest(sends)
    inside = path if path.endswith("/") else f"{path}\0"
    size_bytes = sum(
        entry.size for one, entry in sends.items() if one == path or one.startswith(inside)
    )
    files = sum(entry.kind != DIR for entry in sends.values())
    return (
        f"{human_bytes(total_bytes)} in {files} files are to be sent, the biggest in "
        f"{name_paths([path])} ({human_bytes(size_bytes)}); {_how(path)}"
    )


def heaviest(sends: Mapping[str, Entry]) -> str:
    """Return the deepest directory (ending in `/`) that holds most of the bytes.

    If there is none, return the biggest top-level path.
    """
    sums: Counter[str] = Counter()
    for path, entry in sends.items():
        if entry.kind == DIR or not entry.size:
            continue
        base = ""
        *above, name = path.split("/")
        for part in above:
            base += part + "/"
            sums[base] += entry.size
        if not above:
            sums[name] += entry.size
    tops = [path for path in sums if path.rstrip("/").count("/") == 0]
    best = max(sorted(tops), key=lambda path: sums[path], default="")
    while best.endswith("/"):
        depth = best.count("/")
        below = [one for one in sums if one.startswith(best) and one.count("/") == depth + 1]
        deeper = max(sorted(below), key=lambda path: sums[path], default="")
        if not deeper or sums[deeper] <= _MOST * sums[best]:
            break
        best = deeper
    return best


def _how(path: str) -> str:
    """Return how to exclude a path: as a line of .tkignore where one can be written."""
    if not path.isprintable():
        return "to leave it out, name it in .tkignore"
    return f"to leave it out, write /{path.translate(_GLOB)} into .tkignore"
