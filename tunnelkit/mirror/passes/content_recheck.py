"""Content that changed while size and times did not: read again, a little at a time.

A page that is mapped and already dirty changes without a trace in the file's times; on tmpfs any
mapped page does. Nothing but its content tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE, digest, lstat

#: Of each round; one begins every two minutes.
_ROUND_S = 0.2
#: Files of the last minutes are looked at in each round, for half of it at most: who maps a file
#: works with it now.
_LATELY_NS = 900 * 1_000_000_000
#: Bigger files are left out: one would take longer than many rounds.
BIG_BYTES = 256 << 20


class ContentRecheck:
    """Goes round the files that were sent. One `differing` at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._after = ""

    def differing(
        self, rows: Mapping[str, ManifestEntry], stop: Callable[[], bool]
    ) -> frozenset[str]:
        """Of some files, those whose content is not what was sent though lstat says so (blocking,
        0.2 s and one file at most). stop: asked between two files whether to end at once."""
        begin, found = time.monotonic(), set[str]()
        lately_ns = time.time_ns() - _LATELY_NS
        late = [path for path, row in rows.items() if row.entry.ctime_ns > lately_ns]
        for path in late:
            if stop() or time.monotonic() > begin + _ROUND_S / 2:
                break
            if self._differs(path, rows):
                found.add(path)
        for path in self._onward(rows):
            if stop() or time.monotonic() > begin + _ROUND_S:
                break
            if self._differs(path, rows):
                found.add(path)
            self._after = path
        return frozenset(found)

    def _onward(self, rows: Mapping[str, ManifestEntry]) -> Iterator[str]:
        """All paths once, from where the last round ended."""
        paths = sorted(rows)
        yield from (path for path in paths if path > self._after)
        yield from (path for path in paths if path <= self._after)

    def _differs(self, path: str, rows: Mapping[str, ManifestEntry]) -> bool:
        row = rows.get(path)
        if row is None or row.entry.kind != FILE or not row.sent or row.racy:
            return False  # or it is read anyway
        try:
            if row.entry.size > BIG_BYTES or lstat(self._root, path) != row.entry:
                return False  # what lstat tells is the next look's affair
            text = digest(self._root, path, FILE)
            return text != row.digest and lstat(self._root, path) == row.entry
        except OSError:
            return False
