"""A record whose host has another disk than before: a pod that was restarted or made again.

Its disk may be as its image has it. What tk left there is gone, and a file that differs is no edit
of a user. On a volume all is as it was.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Mapping

from tunnelkit.mirror.record.manifest import Manifest
from tunnelkit.mirror.tree.scanner import DIR


def doubt_all(manifest: Manifest, instance: str) -> bool:
    """Count no path as sent if the record is of another instance of its host (blocking).

    instance: "" where a host keeps its disk. Returns True if there are paths to doubt: the first
    check of them must `accept` what is there.
    """
    beside = manifest.path.with_suffix(".instance")
    mark, known = hashlib.sha256(instance.encode()).hexdigest(), ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        known = beside.read_text("ascii")
    if not instance or known == mark:
        return False
    doubted = {
        path: row._replace(sent=False, proven=False, stamp="")
        for path, row in manifest.rows.items()
        if row.sent
    }
    manifest.put(doubted)
    with contextlib.suppress(OSError):  # then the next start doubts them once more
        beside.write_text(mark, "ascii")
    return bool(doubted)


def accept(manifest: Manifest, paths: Collection[str], stamps: Mapping[str, str]) -> None:
    """Count these files as sent again: they are there exactly as recorded (blocking)."""
    rows = manifest.rows
    manifest.put(
        {
            path: rows[path]._replace(sent=True, stamp=stamps.get(path, ""))
            for path in paths
            if not (rows[path].sent or rows[path].tried or rows[path].entry.kind == DIR)
        }
    )
