"""Find files whose content changed while size and times did not, a few per round.

Writing to a mapped page that is already dirty doesn't change the file's times. On tmpfs this is
true for every mapped page. Only reading the content finds such a change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE, digest, lstat

#: Duration of a round. A round begins every two minutes.
_ROUND_S = 0.2
#: Files that changed in the last 15 minutes are read in each round, for at most half of it: a
#: program that maps a file is likely to be in use now.
_LATELY_NS = 900 * 1_000_000_000
#: Bigger files are not reread: one would take longer than many rounds.
BIG_BYTES = 256 << 20


class ContentRecheck:
    """Rechecks the sent files in turn. One `differing` at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._after = ""

    def differing(
        self, rows: Mapping[str, ManifestEntry], stop: Callable[[], bool]
    ) -> frozenset[str]:
        """Return the files whose content is not what was sent though lstat says so.

        Blocking: takes 0.2 s, and at most one file longer.
        stop: called between two files. True ends the round at once.
        """
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
        """Yield all paths once, from where the last round ended."""
        paths = sorted(rows)
        yield from (path for path in paths if path > self._after)
        yield from (path for path in paths if path <= self._after)

    def _differs(self, path: str, rows: Mapping[str, ManifestEntry]) -> bool:
        row = rows.get(path)
        if row is None or row.entry.kind != FILE or not row.sent or row.racy:
            return False  # never sent, or read anyway
        try:
            if row.entry.size > BIG_BYTES or lstat(self._root, path) != row.entry:
                return False  # the next scan finds what lstat shows
            text = digest(self._root, path, FILE)
            return text != row.digest and lstat(self._root, path) == row.entry
        except OSError:
            return False
