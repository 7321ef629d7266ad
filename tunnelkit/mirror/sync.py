"""One pass: look at both ends, decide, delete and send, write down what was done.

The order matters. What a path is on the cluster is looked at right before anything is
done to it: tk only deletes or overwrites in silence what is still as tk left it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from tunnelkit.mirror import local, plan, shell
from tunnelkit.mirror.base import Remote
from tunnelkit.mirror.ignore import REPLACED_DIR
from tunnelkit.mirror.local import Outcome, Work
from tunnelkit.mirror.manifest import Manifest, Row
from tunnelkit.mirror.rsync import Rsync, itemized
from tunnelkit.mirror.scan import DIR, LINK, Entry, Scan, Scanner, lstat, racy
from tunnelkit.mirror.shell import RemoteStat

_NS = 1_000_000_000


class Syncer:
    """Makes one remote root equal to one local root. One pass at a time."""

    def __init__(
        self,
        remote: Remote,
        rsync: Rsync,
        scanner: Scanner,
        manifest: Manifest,
        remote_root: str,
        *,
        fresh: bool = False,
    ) -> None:
        self._remote = remote
        self._rsync = rsync
        self._scanner = scanner
        self._manifest = manifest
        self._remote_root = remote_root
        self._fresh = fresh
        #: sent, but not yet known to have arrived as they are here: what is there is ours
        self._in_flight: set[str] = set()
        self.last_scan: Scan | None = None
        #: paths known to need sending: for the status, and for the message of a timeout
        self.pending: frozenset[str] = frozenset()

    async def run(
        self,
        *,
        repair: bool = False,
        allow_deletes: bool = False,
        force: Collection[str] = (),
        on_pending: Callable[[frozenset[str]], None] = lambda paths: None,
    ) -> Outcome:
        """One pass. repair: also look whether all that was sent is still there. force: send
        these again. on_pending: told what there is to do, before it is done. Raises
        MirrorHalted, ConnectionFailed, MirrorError, MissingProgram, TimeoutExpired."""
        scan = await asyncio.to_thread(self._scanner.scan)
        self.last_scan = scan
        rows = self._manifest.rows
        out = Outcome(scan_s=scan.duration_s)
        for path, why in scan.unreadable.items():
            out.failed[path] = f"can't be read: {why}"
        difference = plan.compare(rows, scan.entries, force=force)
        self.pending = frozenset(difference.changed)
        work = await asyncio.to_thread(
            local.read, self._scanner.root, rows, scan, difference, force, out
        )
        if not allow_deletes:
            plan.check_deletes(rows, work.deletes, scan.entries)
        self.pending = frozenset({*work.sends, *work.deletes, *out.failed, *out.changing})
        await asyncio.to_thread(self._note, work.refreshed, work.forgotten)
        if work.sends or work.deletes or repair:
            on_pending(self.pending)
            await self._apply(scan, work, out, repair=repair)
        self.pending = frozenset({*out.failed, *out.changing})
        return out

    def interesting(self, path: str) -> bool:
        """Whether an event at this absolute path may matter. Called in any thread."""
        return local.interesting(self._scanner.root, self.last_scan, path)

    def _note(self, seen: Mapping[str, tuple[Entry, bool]], forgotten: Collection[str]) -> None:
        self._manifest.refresh(seen)
        self._manifest.drop(forgotten)

    async def _apply(self, scan: Scan, work: Work, out: Outcome, *, repair: bool) -> None:
        rows = self._manifest.rows
        touched = {*work.sends, *work.deletes}
        if repair:
            touched.update(path for path in rows if path in scan.entries)
        there = await self._look(touched)
        if repair:
            self._add_missing(scan, work, there)
        self._drop_blocked(work, there, out)
        await asyncio.to_thread(self._manifest.drop, work.forgotten)
        early = plan.swaps(work.deletes, work.sends, rows)
        removed = await self._delete(early, there, out)
        for path in removed:
            there.pop(path, None)
        turned = {path for path in early & work.sends.keys() if work.sends[path].kind != DIR}
        there |= await shell.survey(self._remote, self._remote_root, turned)
        _keep_dirs(work, there, out)
        await self._send(work, there, out)
        await self._delete(work.deletes - early, there, out)
        self._fresh = False

    async def _look(self, paths: Collection[str]) -> dict[str, RemoteStat]:
        if self._fresh:  # we have just made the root: nothing can be in it
            return {}
        return await shell.survey(self._remote, self._remote_root, plan.with_parents(paths))

    def _add_missing(self, scan: Scan, work: Work, there: Mapping[str, RemoteStat]) -> None:
        """Send again what is no longer on the cluster as we left it."""
        for path, row in self._manifest.rows.items():
            if not row.sent or path in work.sends or scan.entries.get(path) != row.entry:
                continue
            if not _as_sent(row, there.get(path)):
                work.sends[path] = row.entry
                work.digests[path] = row.digest

    def _drop_blocked(self, work: Work, there: Mapping[str, RemoteStat], out: Outcome) -> None:
        """Take out of `work` what would go through a symlink on the cluster, or replace a
        file that tk did not put there by a directory."""
        rows = self._manifest.rows
        needed = plan.with_parents(work.sends.keys() | work.deletes) - work.deletes
        blocked: dict[str, str] = {}
        for path in needed:
            found, entry, row = there.get(path), work.sends.get(path), rows.get(path)
            if found is None or found.kind == DIR or (entry is not None and entry.kind != DIR):
                continue
            if entry is not None and row is not None and self._ours(path, found):
                continue  # our own file, which a directory replaces now
            what = "a symlink, which is not followed" if found.kind == LINK else "a file"
            blocked[path] = f"on the cluster {path} is {what}"
        for path in [*work.sends, *work.deletes] if blocked else ():
            reason = next(
                (blocked[it] for it in (path, *plan.parents(path)) if it in blocked), None
            )
            if reason is None:
                continue
            if path in work.deletes:
                work.deletes.discard(path)
                out.kept.append(path)
                work.forgotten.add(path)
            else:
                del work.sends[path]
                out.failed[path] = reason

    async def _delete(
        self, paths: Collection[str], there: Mapping[str, RemoteStat], out: Outcome
    ) -> set[str]:
        """Remove what is still as we left it. Returns the paths that are gone."""
        rows = self._manifest.rows
        files, dirs, kept = set(), set(), []
        for path in paths:
            row, found = rows[path], there.get(path)
            if found is None:
                continue
            if row.entry.kind == DIR:
                if row.made and found.kind == DIR:
                    dirs.add(path)
            elif found.kind != DIR and self._ours(path, found):
                files.add(path)
            else:
                kept.append(path)
        complaint = await shell.remove_files(self._remote, self._remote_root, files)
        await shell.remove_dirs(self._remote, self._remote_root, dirs)
        stuck: set[str] = set()
        if complaint is not None:
            left = await shell.survey(self._remote, self._remote_root, files)
            stuck = {path for path in files if path in left}
            out.failed.update(dict.fromkeys(stuck, f"can't be deleted: {complaint}"))
        out.kept += kept
        out.deleted += len(files - stuck)
        done = set(paths) - stuck
        self._in_flight -= done
        await asyncio.to_thread(self._manifest.drop, done)
        return done - set(kept)

    async def _send(self, work: Work, there: Mapping[str, RemoteStat], out: Outcome) -> None:
        if not work.sends:
            return
        rows = self._manifest.rows
        foreign = {
            path
            for path in work.sends
            if path in there and work.sends[path].kind != DIR and not self._ours(path, there[path])
        }
        intents = {
            path: Row(entry, work.digests[path], made=entry.kind == DIR and path not in there)
            for path, entry in work.sends.items()
            if path not in foreign and not (path in rows and rows[path].sent)
        }
        await asyncio.to_thread(self._manifest.put, intents)
        plain = work.sends.keys() - foreign
        self._in_flight |= plain
        failed: dict[str, str] = {}
        if plain:
            size = _size(work, plain)
            result = await self._rsync.push(plain, self._remote_root, size_bytes=size)
            if result.partial:
                failed |= await self._failures(plain, size, result.error_text)
        if foreign:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            backup_dir = f"{self._remote_root.rstrip('/')}/{REPLACED_DIR}/{stamp}"
            size = _size(work, foreign)
            result = await self._rsync.adopt(
                foreign, self._remote_root, backup_dir=backup_dir, size_bytes=size
            )
            if result.partial:
                failed |= await self._failures(foreign, size, result.error_text)
            replaced = _replaced(result.stdout, foreign - failed.keys())
            if replaced:
                out.replaced += replaced
                out.replaced_dir = backup_dir
        await asyncio.to_thread(self._confirm, work, failed, there, out)

    async def _failures(self, paths: Collection[str], size: int, cause: str) -> dict[str, str]:
        left = await self._rsync.differing(paths, self._remote_root, size_bytes=size)
        return {path: cause for path in left if path in paths}

    def _confirm(
        self,
        work: Work,
        failed: Mapping[str, str],
        there: Mapping[str, RemoteStat],
        out: Outcome,
    ) -> None:
        """Write down what arrived: only what is here still as it was when it was read."""
        rows, done = self._manifest.rows, {}
        for path, entry in work.sends.items():
            try:
                unchanged = lstat(self._scanner.root, path) == entry
            except OSError:
                unchanged = False
            if not unchanged:
                out.changing.add(path)
            elif path in failed:
                out.failed[path] = failed[path]
            else:
                row = rows.get(path)
                made = row.made if row and row.entry.kind == DIR else path not in there
                done[path] = Row(
                    entry,
                    work.digests[path],
                    sent=True,
                    # Sent after it was read: what a later tick hides shows in its digest.
                    racy=racy(entry, scan_ns(self.last_scan)),
                    made=entry.kind == DIR and made,
                )
                if entry.kind != DIR:
                    out.sent += 1
                    out.sent_bytes += entry.size
        self._manifest.put(done)
        self._in_flight -= done.keys()

    def _ours(self, path: str, found: RemoteStat) -> bool:
        """Whether what is there is what tk put there, and may go without a word."""
        if path in self._in_flight:
            return True
        row = self._manifest.rows.get(path)
        return row is not None and _as_sent(row, found)


def scan_ns(scan: Scan | None) -> int:
    return scan.started_ns if scan is not None else 0


def _keep_dirs(work: Work, there: Mapping[str, RemoteStat], out: Outcome) -> None:
    """Take out of `work` what would replace a directory that still holds something."""
    for path, entry in list(work.sends.items()):
        found = there.get(path)
        if found is not None and found.kind == DIR and entry.kind != DIR:
            del work.sends[path]
            out.failed[path] = (
                f"on the cluster {path} is a directory with files that tk didn't send"
            )


def _size(work: Work, paths: Collection[str]) -> int:
    return sum(work.sends[path].size for path in paths)


def _as_sent(row: Row, found: RemoteStat | None) -> bool:
    """Whether a remote path still is what tk put there, as far as stat can tell."""
    if found is None or found.kind != row.entry.kind:
        return False
    if found.kind == DIR:
        return True
    if found.size != row.entry.size:
        return False
    # Protocols before 31 carry whole seconds; a symlink's times may not be settable.
    return found.kind == LINK or found.mtime_s == row.entry.mtime_ns // _NS


def _replaced(stdout: bytes, foreign: Collection[str]) -> list[str]:
    """Which foreign files' content gave way: lines of a transfer or a remade symlink, not
    those of attributes alone (`.f..t....`)."""
    moved = b"\n".join(line for line in stdout.split(b"\n") if line[:1] in b"<c" and line)
    return sorted(path for path in itemized(moved) if path in foreign)
