"""Verify remote files through the agent: by stat, and by digest where stat differs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tunnelkit.mirror.agent.channel import owner_json, refusal, while_up
from tunnelkit.mirror.api import FileAgent
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.record.manifest import ManifestEntry, same_time
from tunnelkit.mirror.record.other_disk import accept
from tunnelkit.mirror.tree.scanner import DIR
from tunnelkit.mux.parcels import checked

#: Paths in one call: keeps messages below a megabyte or two.
_CALL_PATHS = 5_000
_BYTES_PER_S = 10 << 20
#: The agent's word for a path at which nothing is.
_ABSENT = "absent"

#: As sent: path, kind, size, mode, sha256, stamp.
_SentFile = tuple[str, str, int, int, str, str]


async def verify(agent: FileAgent, ground: SyncContext) -> frozenset[str]:
    """Make the agent check every recorded path. Return the paths that are not as tk left them.

    If the agent is the node, correct files count as proven. Also removes what a broken transfer
    left behind. Raises MirrorHalted, NotThere or TunnelkitError.
    """
    wrong: set[str] = set()
    await _clean(agent, ground)
    for part in _parts(ground):
        wrong |= await _check(agent, ground, part)
    ground.other_disk = False
    return frozenset(wrong)


async def ping(agent: FileAgent, ground: SyncContext) -> str:
    """Check that the agent answers and sees the root. Raises as `verify`.

    Returns its `MirrorChannel.instance` for the directory that is there now."""
    return str((await _ask(agent, ground, [], clean=False)).get("instance"))


async def _clean(agent: FileAgent, ground: SyncContext) -> None:
    """Clean directories that have no manifest entries left. `_check` cleans the others."""
    unclean = list(ground.manifest.unclean)
    for begin in range(0, len(unclean), _CALL_PATHS):
        part = unclean[begin : begin + _CALL_PATHS]
        await _call(agent, ground, [(path, DIR, 0, 0, "", "") for path in part], clean=True)
        await asyncio.to_thread(ground.manifest.cleaned, part)


async def _check(agent: FileAgent, ground: SyncContext, part: dict[str, ManifestEntry]) -> set[str]:
    files = [
        (path, row.entry.kind, row.entry.size, row.entry.mode, row.digest, row.stamp)
        for path, row in part.items()
    ]
    differ, stamps = await _call(agent, ground, files, clean=True)
    # The user may change permissions there, once the file has arrived.
    wrong = {path for path, why in differ.items() if why != "mode"}
    wrong |= {path for path, stamp in stamps.items() if not same_time(part[path], stamp)}
    # A job removes its own files as it likes.
    gone = {path for path in wrong if differ.get(path) == _ABSENT and part[path].sent}
    gone = {path for path in gone if path in ground.pulled}
    right = {path: row.digest for path, row in part.items() if path not in wrong}
    wrong -= gone
    if ground.other_disk:
        await asyncio.to_thread(accept, ground.manifest, right.keys() - differ.keys(), stamps)
    note = ground.manifest.prove if agent.is_node else ground.manifest.stamp
    await asyncio.to_thread(note, right, stamps)
    return wrong


async def _call(
    agent: FileAgent, ground: SyncContext, files: list[_SentFile], *, clean: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return by path why it is not as sent, and the stamps of those whose content is right."""
    found = await _ask(agent, ground, files, clean=clean)
    return checked(found["differ"], dict), checked(found["stamps"], dict)


async def _ask(
    agent: FileAgent, ground: SyncContext, files: list[_SentFile], *, clean: bool
) -> dict[str, object]:
    size_bytes = sum(file[2] for file in files)
    asking = agent.call(
        "mirror.verify",
        root=ground.remote_root,
        owner=owner_json(ground.claim),
        files=files,
        clean=clean,
    )
    # A busy network file system answers a few hundred lookups a second at worst.
    budget_s = 30.0 + len(files) / 100 + size_bytes / _BYTES_PER_S
    found = checked(await while_up(agent, asking, budget_s), dict)
    if "code" in found:
        raise refusal(found, ground.remote.destination(), ground.remote_root, ground.claim)
    return found


def _parts(ground: SyncContext) -> Iterator[dict[str, ManifestEntry]]:
    # Includes unanswered rows: their directories must be cleaned.
    rows = list(ground.manifest.rows.items())
    for begin in range(0, max(1, len(rows)), _CALL_PATHS):
        yield dict(rows[begin : begin + _CALL_PATHS])
