"""The proof of a barrier: the compute node reads back what it has not proven yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

from tunnelkit.errors import ConnectionFailed, MirrorError, TimeoutExpired
from tunnelkit.mirror.agent.channel_provider import ChannelProvider
from tunnelkit.mirror.api import DigestCheck, MirrorState, MirrorStatus, name_paths
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE

#: pauses between queries while the node's file system lags, growing between these
_ASK_AGAIN_S = (0.1, 2.0)
_RESEND_AFTER = 3


async def prove(
    channels: ChannelProvider,
    check: DigestCheck,
    manifest: Manifest,
    *,
    greeting: Awaitable[bool],
    deadline: float,
    timeout_s: float,
    resend: Callable[[frozenset[str]], Awaitable[object]],
) -> int:
    """Wait until the node has read back all files as they were sent; return their number.

    deadline: of `time.monotonic`.
    timeout_s: the caller's limit, for messages.
    greeting: a `ChannelProvider.ping` that began after the call.
    resend: checks the files on the login host and sends again those that nobody has edited. Raises
        TimeoutExpired and MirrorError, which name the files, and what `resend` raises.
    """
    waiting = len(manifest.unproven())
    # Files that the agent received are read back already, or just now. If there is nothing to
    # read, a sign of life of the node is part of the proof.
    known = channels.proofs_in() if waiting else _greet(greeting, check, manifest)
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            await known
    except TimeoutError:
        raise not_read_back(manifest.unproven(), timeout_s) from None
    proven = max(0, waiting - len(manifest.unproven()))
    return proven + await _read_back(check, manifest, deadline, timeout_s, resend)


async def _greet(greeting: Awaitable[bool], check: DigestCheck, manifest: Manifest) -> None:
    try:
        is_there = await greeting
    except ConnectionFailed:  # the link broke under it
        is_there = False
    # While its link is lost: once it is back. An agent without a channel, as where the node may
    # only read, is not asked for the root: one file shows that it still sees it.
    if not is_there and await check(_smallest(manifest)):
        await asyncio.to_thread(manifest.forget_proofs)


def _smallest(manifest: Manifest) -> dict[str, str]:
    """Return {path: sha256 hex} of the smallest file that was sent; {} if there is none."""
    rows = dict(manifest.rows)  # a pass may be under way
    files = (
        (row.entry.size, path)
        for path, row in rows.items()
        if _is_sent_file(row) and path not in manifest.pulled
    )
    least = min(files, default=None)
    return {} if least is None else {least[1]: rows[least[1]].digest}


def _is_sent_file(row: ManifestEntry) -> bool:
    return row.sent and row.entry.kind == FILE


async def _read_back(
    check: DigestCheck,
    manifest: Manifest,
    deadline: float,
    timeout_s: float,
    resend: Callable[[frozenset[str]], Awaitable[object]],
) -> int:
    wanted = set(manifest.unproven())
    proven, rounds, pause_s = 0, 0, _ASK_AGAIN_S[0]
    while True:
        digests = {path: text for path, text in manifest.unproven().items() if path in wanted}
        if not digests:
            return proven
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                differing = frozenset(await check(digests))
        except TimeoutError:
            raise not_read_back(digests, timeout_s) from None
        good = {path: text for path, text in digests.items() if path not in differing}
        proven += await asyncio.to_thread(manifest.prove, good)
        if not differing:
            continue  # a file that was sent again meanwhile is checked again
        if time.monotonic() + pause_s > deadline:
            raise _node_differs(differing)
        rounds += 1
        if rounds == _RESEND_AFTER:  # more than lag: was it changed there?
            try:
                await resend(differing)
            except TimeoutExpired:
                raise _node_differs(differing) from None
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _ASK_AGAIN_S[1])


def not_read_back(paths: Collection[str], timeout_s: float) -> TimeoutExpired:
    """Return the error for a barrier that the node did not answer in time."""
    pending = f"{len(paths)} pending: {name_paths(sorted(paths))}" if paths else None
    return TimeoutExpired(
        f"the compute node has not read the files back within {timeout_s:g} s",
        cause=pending or "it does not answer",
        transient=True,
        hint="`tk status` shows what is pending; `tk sync --wait` waits for it",
    )


def not_in_sync(status: MirrorStatus, timeout_s: float) -> TimeoutExpired:
    """Return the error for a barrier that timed out with this status."""
    cause = None
    if status.pending_paths:
        cause = f"{status.pending} pending: {name_paths(status.pending_paths)}"
    if status.state is MirrorState.STALE:
        cause = "; ".join(filter(None, (status.describe(), cause)))
    return TimeoutExpired(
        f"the mirror is not in sync after {timeout_s:g} s",
        cause=cause,
        hint="wait and try again; exclude files that never stop changing",
        transient=True,
    )


def _node_differs(paths: frozenset[str]) -> MirrorError:
    return MirrorError(
        "the compute node still sees other content than the laptop",
        cause=f"{len(paths)} differ: {name_paths(sorted(paths))}",
        hint="its network file system lags, or something there changes them",
        transient=True,
    )
