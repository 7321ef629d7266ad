"""What of an unfinished change can be sent already: files that are whole, and their directories."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from tunnelkit.mirror import plan
from tunnelkit.mirror.manifest import Row
from tunnelkit.mirror.scan import DIR, FILE, Entry, Scan

#: A file above this goes by rsync, which sends what changed in it.
LIVE_FILE_BYTES = 8 << 20
#: A file that is so old is not being written any more; and its time stamps tell.
_SETTLED_NS = 100_000_000


def ahead_of(
    rows: Mapping[str, Row],
    scan: Scan,
    looked: Collection[str] | None,
    staged: Mapping[str, Entry],
) -> plan.Difference:
    """What to stage now. looked: paths that may have changed, None: any; staged: what was
    staged before, and as what. Changes of kind, links and deletes wait for the end."""
    horizon_ns = time.time_ns() - _SETTLED_NS
    difference = plan.compare(rows, scan.entries, only=looked)
    wanted = plan.Difference()
    for path, entry in difference.changed.items():
        row = rows.get(path)
        if row is not None and row.entry.kind != entry.kind:
            continue
        is_new_dir = entry.kind == DIR and row is None
        is_whole = entry.kind == FILE and entry.ctime_ns < horizon_ns
        if staged.get(path) != entry and (
            is_new_dir or (is_whole and entry.size <= LIVE_FILE_BYTES)
        ):
            wanted.changed[path] = entry
    return wanted
