"""Mirrored files that somebody changed on the cluster.

Before a path is overwritten, its stat there is compared with what tk put there; each push makes
that query anyway. Only where stat shows a difference (or the compute node read another digest) the
content is read: a file that was only touched, or that already equals the laptop's, is no conflict.
A file in conflict is left alone until the user decides: the laptop's version (`tk sync --ours`, the
cluster's is kept in .tk-replaced there) or the cluster's (`tk sync --theirs`, the laptop's is kept
in .tk-replaced on the laptop).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from tunnelkit.errors import MirrorConflict, MirrorError
from tunnelkit.mirror.api import name_paths
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.remote.scripts import RemoteStat, encode, stat_paths
from tunnelkit.mirror.tree.scanner import DIR, FILE, LINK, Entry
from tunnelkit.remote_script import RemoteHost, run_script

# Names are escaped by sha256sum, so that a line is a file: older ones have no --zero.
_DIGESTS = (
    "cd -- \"$1\" || exit 91\nxargs -0 sha256sum -b -- 2>/dev/null | tr '\\n' '\\0'\nexit 0\n"
)
# The dot keeps newlines at a target's end.
_TARGETS = r"""
cd -- "$1" || exit 91
xargs -0 sh -c 'for path do
  target=$(readlink -n -- "$path" 2>/dev/null && printf .) || continue
  printf "%s\0%s\0" "$path" "${target%.}"
done' tk
exit 0
"""
_LINE = re.compile(rb"(\\?)([0-9a-f]{64}) [ *]\./(.*)", re.DOTALL)
_ESCAPES = {b"\\n": b"\n", b"\\r": b"\r", b"\\\\": b"\\"}
_BYTES_PER_S = 50 << 20
_NS = 1_000_000_000


def matches_sent(row: ManifestEntry, found: RemoteStat | None) -> bool:
    """Return True if a remote path still is what tk put there, as far as stat can tell."""
    if found is None or found.kind != row.entry.kind:
        return False
    if found.kind == DIR:
        return True
    if found.size != row.entry.size:
        return False
    # Protocols before 31 carry whole seconds; a symlink's times may not be settable.
    return found.kind == LINK or found.mtime_s == row.entry.mtime_ns // _NS


def suspects(
    sends: Mapping[str, Entry],
    rows: Mapping[str, ManifestEntry],
    there: Mapping[str, RemoteStat],
    doubted: Collection[str],
) -> set[str]:
    """Return the files about to be sent that may have been changed on the cluster.

    doubted: paths that are suspect for another reason than their stat.
    """
    found = set()
    for path, entry in sends.items():
        row, stat = rows.get(path), there.get(path)
        if row is None or not row.sent or stat is None:
            continue  # not tk's yet, or gone
        if DIR in (row.entry.kind, entry.kind, stat.kind):
            continue  # a file and a directory that change places: see obstacles.py
        if path in doubted or not matches_sent(row, stat):
            found.add(path)
    return found


def parse_digest(line: bytes) -> tuple[str, str] | None:
    """Return (path, sha256 hex) of one line of sha256sum's output; None for anything else."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    escaped, text, name = match.groups()
    if escaped:
        name = re.sub(rb"\\[nr\\]", lambda one: _ESCAPES[one[0]], name)
    return os.fsdecode(name), text.decode()


async def remote_digests(
    remote: RemoteHost, root: str, found: Mapping[str, RemoteStat]
) -> dict[str, str]:
    """Return the sha256 hex of these files, and of the targets of these symlinks, below `root`.

    Those that can't be read are left out. The caller has made sure that no directory above them is
    a symlink.
    """
    digests: dict[str, str] = {}
    links = sorted(path for path, stat in found.items() if stat.kind == LINK)
    if links:
        digests = await _target_digests(remote, root, links)
    files = sorted(path for path, stat in found.items() if stat.kind == FILE)
    if not files:
        return digests
    size = sum(found[path].size for path in files)
    done = await run_script(
        remote,
        _DIGESTS,
        [root],
        stdin=encode(files),
        timeout_s=30.0 + len(files) / 300 + size / _BYTES_PER_S,
        what=f"can't read files in {root}",
    )
    return digests | dict(pair for pair in map(parse_digest, done.items) if pair is not None)


async def _target_digests(remote: RemoteHost, root: str, links: Sequence[str]) -> dict[str, str]:
    done = await run_script(
        remote,
        _TARGETS,
        [root],
        stdin=encode(links),
        timeout_s=30.0 + len(links) / 50,
        what=f"can't read symlinks in {root}",
    )
    pairs = zip(done.items[::2], done.items[1::2], strict=False)
    return {os.fsdecode(name[2:]): hashlib.sha256(target).hexdigest() for name, target in pairs}


async def retargeted(
    remote: RemoteHost,
    root: str,
    rows: Mapping[str, ManifestEntry],
    links: Mapping[str, RemoteStat],
) -> tuple[set[str], dict[str, RemoteStat | None]]:
    """Return the symlinks that lead elsewhere though stat shows no difference (first).

    Second: by path, what is there instead of symlinks that vanished during this query. Data that
    was sent over a link that then broke may still be applied meanwhile.
    """
    digests = await remote_digests(remote, root, links)
    elsewhere = {path for path in digests if digests[path] != rows[path].digest}
    unread = links.keys() - digests.keys()
    now = await _look_again(remote, root, unread)
    elsewhere |= {path for path, found in now.items() if found is not None and found.kind == LINK}
    return elsewhere, {path: now[path] for path in unread - elsewhere}


async def remotely_edited(
    remote: RemoteHost,
    root: str,
    suspects: Mapping[str, RemoteStat],
    known: Mapping[str, Collection[str]],
) -> set[str]:
    """Return the paths whose remote content tk never put there.

    suspects: their remote stat.
    known: by path the digests that are no conflict: what tk sent last and what the laptop has now.
        A path that has vanished by now is no edit.
    """
    digests = await remote_digests(remote, root, suspects)
    now = await _look_again(remote, root, suspects.keys() - digests.keys())
    left = {path: found for path, found in now.items() if found is not None}
    if left:  # another one has taken its place, or it can't be read
        digests |= await remote_digests(remote, root, left)
    gone = now.keys() - left.keys()
    return {path for path in suspects.keys() - gone if digests.get(path) not in known[path]}


async def _look_again(
    remote: RemoteHost, root: str, paths: Collection[str]
) -> dict[str, RemoteStat | None]:
    if not paths:
        return {}
    found = await stat_paths(remote, root, paths)
    return {path: found.get(path) for path in paths}


class NoConflict(MirrorError):
    """Error: the user wants to settle a conflict at a path that has none."""


def conflict_error(paths: Collection[str]) -> MirrorConflict:
    """Return the error that `tk sync` and `tk ready --sync` end with."""
    names = sorted(paths)
    what = "file was" if len(names) == 1 else "files were"
    return MirrorConflict(
        f"{len(names)} mirrored {what} changed on the cluster: {name_paths(names, limit=10)}",
        cause="not overwritten",
        hint="keep the laptop's: tk sync --ours PATH; take the cluster's: tk sync --theirs PATH",
    )


def cannot_send(failed: Mapping[str, str]) -> MirrorError:
    """Return the error of paths that can't be written on the cluster, with the reasons."""
    paths = sorted(failed)
    return MirrorError(
        f"{len(paths)} of the mirrored paths can't be sent: {name_paths(paths)}",
        cause=failed[paths[0]],
        hint="put that right, or exclude them in [mirror] exclude",
    )


def paths_under(paths: Iterable[str], wanted: Sequence[str]) -> set[str]:
    """Return those of `paths` that are one of `wanted` or lie in it; "" is the root."""
    return {
        path
        for path in paths
        if any(not one or path == one or path.startswith(one + "/") for one in wanted)
    }


def select_conflicts(conflicts: Collection[str], wanted: Sequence[str]) -> set[str]:
    """Return the conflicts at or below `wanted`. Raises NoConflict for a path without one."""
    for one in wanted:
        if not paths_under(conflicts, [one]):
            raise NoConflict(
                f"{name_paths([one or '.'])} is in no conflict",
                cause="it is not mirrored, or is on the cluster as tk put it there",
                hint="`tk status` lists the conflicts",
            )
    return paths_under(conflicts, wanted)


def relative_to(root: str, path: str) -> str:
    """Return a local path relative to the mirrored root, "" for the root itself.

    The last component is not followed. Raises MirrorError if it lies outside.
    """
    full = os.path.abspath(path)
    parent, name = os.path.split(full)
    full = os.path.join(os.path.realpath(parent), name)
    if full == root or os.path.realpath(full) == root:
        return ""
    if not full.startswith(root.rstrip("/") + "/"):
        raise MirrorError(
            f"{name_paths([path])} is not in the mirrored directory",
            cause=f"that is {root}",
            hint="name a path inside it",
        )
    return os.path.relpath(full, root)
