"""Files that a job may have written again in the moment of the pull: their content is compared.

Size and time can't show that where the time is that of the same tick. Many file systems of
clusters keep whole seconds.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping

from tunnelkit.mirror.record.pulled_files import Placed
from tunnelkit.mirror.remote.edits import remote_digests
from tunnelkit.mirror.remote.scripts import RemoteStat
from tunnelkit.mirror.tree.scanner import FILE, digest
from tunnelkit.remote_script import RemoteHost

_NS = 1_000_000_000
#: Clocks of a cluster's nodes and file servers may differ so much.
_SPREAD_S = 10


def new_since_ns(listed_at_s: int) -> int:
    """Return the mtime from which on a file may change later without a new one.

    listed_at_s: the time there, before any of the files was read."""
    return (listed_at_s - _SPREAD_S) * _NS


async def written_again(
    remote: RemoteHost,
    remote_root: str,
    local_root: str,
    placed: Mapping[str, Placed],
    sizes: Mapping[str, int],
) -> frozenset[str]:
    """Return the files of which the cluster has other content of the same size by now.

    placed: what a pull has put on the laptop. Files that were edited here since are left out.
    sizes: the sizes there. Raises ConnectionFailed, MirrorError."""
    here = await asyncio.to_thread(_digests, local_root, placed, sizes)
    stats = {path: RemoteStat(FILE, sizes[path], 0) for path in here}
    there = await remote_digests(remote, remote_root, stats)
    return frozenset(path for path, text in here.items() if there.get(path, text) != text)


def _digests(root: str, placed: Mapping[str, Placed], sizes: Mapping[str, int]) -> dict[str, str]:
    """Return the digests of the files that are here as they were placed."""
    found = {}
    for path, (size, mtime_ns) in placed.items():
        try:
            info = os.lstat(os.path.join(root, path))
            as_placed = (info.st_size, info.st_mtime_ns) == (size, mtime_ns)
            if stat.S_ISREG(info.st_mode) and as_placed and size == sizes.get(path):
                found[path] = digest(root, path, FILE)
        except OSError:
            continue  # gone from here, or unreadable: the transfer says so
    return found
