"""Obstacles on the cluster that tk never replaces: symlinks, foreign files and directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tunnelkit.mirror.passes.local_changes import PassPlan
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.remote.scripts import RemoteStat
from tunnelkit.mirror.tree.paths import parents, with_parents
from tunnelkit.mirror.tree.scanner import DIR, LINK


def drop_blocked(
    work: PassPlan,
    there: Mapping[str, RemoteStat],
    rows: Mapping[str, ManifestEntry],
    ours: Callable[[str, RemoteStat], bool],
) -> list[str]:
    """Take paths out of `work` that are blocked on the cluster; return the deletes among them.

    A path is blocked if it needs a directory where the cluster has a symlink, or a file that tk did
    not put there.
    ours: returns True if the remote file is as tk left it.
    """
    needed = with_parents(work.sends.keys() | work.deletes) - work.deletes
    blocked: dict[str, str] = {}
    for path in needed:
        found, entry, row = there.get(path), work.sends.get(path), rows.get(path)
        if found is None or found.kind == DIR or (entry is not None and entry.kind != DIR):
            continue
        if entry is not None and row is not None and ours(path, found):
            continue  # a file that tk put there; the directory replaces it now
        what = "a symlink, which is not followed" if found.kind == LINK else "a file"
        blocked[path] = f"on the cluster {path} is {what}"
    kept = []
    for path in [*work.sends, *work.deletes] if blocked else ():
        reason = next((blocked[it] for it in (path, *parents(path)) if it in blocked), None)
        if reason is None:
            continue
        if path in work.deletes:
            work.deletes.discard(path)
            kept.append(path)
            work.forgotten.add(path)
        else:
            del work.sends[path]
            work.failed[path] = reason
    return kept


def keep_dirs(work: PassPlan, there: Mapping[str, RemoteStat]) -> None:
    """Take out of `work` what would replace a directory that is not empty."""
    for path, entry in list(work.sends.items()):
        found = there.get(path)
        if found is not None and found.kind == DIR and entry.kind != DIR:
            del work.sends[path]
            work.failed[path] = (
                f"on the cluster {path} is a directory with files that tk didn't send"
            )
