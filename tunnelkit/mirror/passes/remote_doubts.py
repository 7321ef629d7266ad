"""Doubts about the remote files: when all that was sent must be verified again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import TypeVar

from tunnelkit.errors import ConnectionFailed, MirrorError, TimeoutExpired
from tunnelkit.mirror.agent.channel import MirrorChannel
from tunnelkit.mirror.agent.verify import verify
from tunnelkit.mirror.api import MirrorHalted
from tunnelkit.mirror.context import SyncContext
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.remote import scripts
from tunnelkit.mirror.tree.scanner import Entry, Scan, digest, lstat, racy

#: A directory that is moved away during a publication has settled after this time.
_DIFFER_S = 0.2
#: After an interrupted transfer: when to check what it may still have brought. In addition, each
#: pass checks for _STRAGGLING_S.
_STRAGGLERS_S = (2.0, 10.0, 30.0)
_STRAGGLING_S = 10.0
#: For so much longer deleted paths stay on record. They are checked again should they come back.
_LATER_S = 25.0
#: A pass waits so long for the login host, whose answer is a help only. After none, for so long no
#: pass asks it.
_ANSWER_S = 3.0
_ASK_AGAIN_S = 60.0

_T = TypeVar("_T")


class RemoteDoubts:
    """`close` at the end. wake: called when a pass is needed without an event on the laptop."""

    def __init__(self, ground: SyncContext, wake: Callable[[], None]) -> None:
        self._ground = ground
        self._wake = wake
        #: True if other content was read back than was sent
        self._differs = False
        #: the agent that has verified all sent files; another one must do so first
        self._verified_by = ""
        self._timer: asyncio.TimerHandle | None = None
        #: until when (monotonic) the login host is not asked what was removed there
        self._quiet_until = 0.0
        #: timers of checks for what a broken transfer may still bring
        self._stragglers: list[asyncio.TimerHandle] = []

    def differ(self) -> None:
        """Verify again soon: a file was changed before the agent could read it back."""
        self._differs = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DIFFER_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._wake()

    def concern(self, live: MirrorChannel) -> bool:
        """Return True if this agent must verify before it is relied on."""
        return self._is_straggling() or live.instance != self._verified_by

    def take(self) -> bool:
        """Return True if the caller, who has no agent, must check the remote files by a repair."""
        self._note_unfinished()
        is_so = self._is_straggling()
        self._differs = self._ground.other_disk = False
        return is_so

    def _is_straggling(self) -> bool:
        """Return True if an older transfer may have overwritten newer files."""
        return self._differs or time.monotonic() < self._ground.straggling_until - _LATER_S

    async def verify(self, live: MirrorChannel) -> frozenset[str]:
        """Return the paths that are not on the cluster as sent. Raises as `verify`."""
        self._note_unfinished()
        differs, self._differs = self._differs, False
        try:
            found = await verify(live.agent, self._ground)
        except BaseException:
            self._differs |= differs
            raise
        self._verified_by = live.instance
        return found

    async def begin(self, live: MirrorChannel, *, untouched: bool) -> None:
        """Rely on the agent of a first copy; remove what an earlier attempt has left, if any."""
        if not untouched:
            await verify(live.agent, self._ground)
        self._verified_by = live.instance

    async def leave_removed(self, scan: Scan, changed: dict[str, Entry], ours: Set[str]) -> None:
        """Take out of `changed` what a job has written again since it was pulled, and then removed.

        Until now that was a conflict. A file that was edited here since the pull is sent.
        ours: the laptop's version of these was asked for.
        """
        ground = self._ground
        if ground.fresh or ground.other_disk:
            return  # it is another directory
        pulled = ground.pulled.placed(ground.conflicts - ours)
        kept = {
            path: entry
            for path, placed in pulled.items()
            if (entry := scan.entries.get(path)) and placed == (entry.size, entry.mtime_ns)
        }
        if not kept or time.monotonic() < self._quiet_until:
            return
        try:
            removed = await scripts.removed_paths(
                ground.remote, ground.remote_root, kept, timeout_s=_ANSWER_S
            )
        except MirrorHalted:
            raise
        except (ConnectionFailed, MirrorError, TimeoutExpired):
            # The agent may be reachable, and see the root, all the same.
            self._quiet_until = time.monotonic() + _ASK_AGAIN_S
            return
        gone = {path: kept[path] for path in removed}
        rows = await asyncio.to_thread(_rows, ground.local_root, gone)
        await asyncio.to_thread(ground.manifest.put, rows)
        ground.conflicts -= rows.keys()
        for path in rows:
            ground.arrived(path)
            changed.pop(path, None)

    async def by_shell(self, run: Awaitable[_T]) -> _T:
        """Await a pass by rsync, and schedule checks if its link breaks.

        The remote rsync may then go on for a while, and overwrite newer files with older data.
        """
        try:
            return await run
        except (ConnectionFailed, TimeoutExpired, asyncio.CancelledError):
            self._expect_stragglers()
            raise

    def _note_unfinished(self) -> None:
        """Take note of a session that was killed while it sent: its rsync is nobody's now."""
        unfinished, self._ground.unfinished = self._ground.unfinished, False
        if unfinished:
            self._expect_stragglers()

    def _expect_stragglers(self) -> None:
        loop = asyncio.get_running_loop()
        self._ground.straggling_until = time.monotonic() + _STRAGGLING_S + _LATER_S
        for timer in self._stragglers:
            timer.cancel()
        self._stragglers = [loop.call_later(s, self._look_for_stragglers) for s in _STRAGGLERS_S]

    def _look_for_stragglers(self) -> None:
        self._differs = True
        self._wake()

    def close(self) -> None:
        """Cancel the timers. Idempotent."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for timer in self._stragglers:
            timer.cancel()


def _rows(root: str, entries: Mapping[str, Entry]) -> dict[str, ManifestEntry]:
    """Return the records of files that the job has removed: nothing of them will be sent."""
    rows = {}
    for path, entry in entries.items():
        begin_ns = time.time_ns()
        with contextlib.suppress(OSError):  # it has changed meanwhile: the pass says so
            text = digest(root, path, entry.kind)
            if lstat(root, path) == entry:
                rows[path] = ManifestEntry(entry, text, sent=True, racy=racy(entry, begin_ns))
    return rows
