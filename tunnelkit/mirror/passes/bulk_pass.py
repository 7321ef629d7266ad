"""A pass by commands on the login host and rsync: big files, repair, all without an agent.

Also makes the first copy if there is no agent. The order matters: tk checks a remote path right
before it changes it. It deletes or overwrites silently only what is still as tk left it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Set

from tunnelkit.mirror.agent.fence import fence
from tunnelkit.mirror.context import PassResult, SyncContext
from tunnelkit.mirror.passes import local_changes, obstacles
from tunnelkit.mirror.passes.delete_guard import check_deletes, is_new
from tunnelkit.mirror.passes.local_changes import PassPlan
from tunnelkit.mirror.passes.options import During, OnPending, PassOptions, awaited
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.remote import edits, scripts
from tunnelkit.mirror.remote.edits import matches_sent
from tunnelkit.mirror.remote.scripts import RemoteStat
from tunnelkit.mirror.transfer.base import Known, Transfer
from tunnelkit.mirror.transfer.rsync import itemized
from tunnelkit.mirror.tree.ignore import REPLACED_DIR
from tunnelkit.mirror.tree.paths import with_parents
from tunnelkit.mirror.tree.scanner import DIR, LINK, Entry, Scan, lstat, racy


class BulkPass:
    """Sends the changes of a diff by shell scripts and rsync. One `run` at a time."""

    def __init__(self, ground: SyncContext, rsync: Transfer, sizes: SizeWatch) -> None:
        self._ground = ground
        self._rsync = rsync
        self._sizes = sizes
        self._during: During = awaited
        #: digests of what tar sends of files that changed after they were hashed
        self._other: dict[str, str] = {}

    async def run(
        self,
        scan: Scan,
        difference: diff.Diff,
        wishes: PassOptions,
        on_pending: OnPending,
        during: During = awaited,
    ) -> PassResult:
        """Send and delete. during: awaits what takes long. Raises as `Syncer.run`."""
        self._during = during
        ground, result = self._ground, PassResult()
        rows = ground.manifest.rows
        hashing = asyncio.to_thread(
            local_changes.hash_changed, ground.local_root, rows, scan, difference, wishes.force
        )
        work = await during(hashing)
        local_changes.spare(work.deletes, work.forgotten, ground.pulled)
        if not wishes.allow_deletes:
            news = {path for path, text in work.digests.items() if is_new(rows.get(path), text)}
            check_deletes(
                {path: row for path, row in rows.items() if path not in news},
                work.deletes,
                scan.entries,
                sent_digests=(work.digests[path] for path in news),
                limit_files=ground.delete_limit,
            )
        await asyncio.to_thread(self._note, work)
        self._look_again_at_conflicts(scan, work, wishes.again)
        work.overruled = {*wishes.ours}
        self._sizes.look(work.sends, scan.entries)
        if work.sends or work.deletes or wishes.repair:
            await fence(ground)
            on_pending(frozenset({*work.sends, *work.deletes}))
            result = await self._apply(scan, work, repair=wishes.repair, checked=wishes.force)
        result.changing |= work.changing
        result.failed = work.failed | result.failed
        return result

    def _note(self, work: PassPlan) -> None:
        self._ground.manifest.refresh(work.refreshed)
        self._ground.manifest.drop(work.forgotten)

    async def _apply(
        self, scan: Scan, work: PassPlan, *, repair: bool, checked: Collection[str]
    ) -> PassResult:
        rows = self._ground.manifest.rows
        touched = {*work.sends, *work.deletes}
        if repair:
            touched.update(path for path in rows if path in scan.entries)
        there = await self._look(touched)
        if repair:
            self._add_missing(scan, work, there)
        await self._look_at_links({*work.sends, *work.deletes}, there)
        await self._recognize(touched, there)
        kept = obstacles.drop_blocked(work, there, rows, self._ground.ours)
        conflicts = await self._set_conflicts_apart(work, there, checked)
        await asyncio.to_thread(self._ground.manifest.drop, work.forgotten)
        folding = self._ground.folding
        early = diff.swaps(work.deletes, work.sends, rows)
        early |= folding.replaced(work.deletes, work.sends)
        result = await self._delete(early, there)
        removed = early - result.failed.keys() - set(result.kept)
        for path in removed | folding.same_place(removed, there):
            there.pop(path, None)
        turned = {path for path in early & work.sends.keys() if work.sends[path].kind != DIR}
        there |= await scripts.stat_paths(self._ground.remote, self._ground.remote_root, turned)
        obstacles.keep_dirs(work, there)
        result.add(await self._send(scan, work, there))
        result.add(await self._delete(work.deletes - early, there))
        self._ground.fresh = False
        result.kept[:0] = kept
        # One that could not be replaced is still a conflict: nothing else would name it again.
        result.conflicts = conflicts | (work.overruled & result.failed.keys())
        return result

    async def _look_at_links(self, paths: Collection[str], there: dict[str, RemoteStat]) -> None:
        """Check the targets of symlinks that will be replaced or deleted, and correct `there`.

        Stat can't tell a symlink with another target from the one that tk made.
        """
        ground, rows = self._ground, self._ground.manifest.rows
        links = {
            path: there[path]
            for path in paths
            if path in rows and path in there and there[path].kind == LINK
            if matches_sent(rows[path], there[path])
        }
        elsewhere, now = await edits.retargeted(ground.remote, ground.remote_root, rows, links)
        for path in elsewhere:
            there[path] = links[path]._replace(size=-1)
        for path, found in now.items():
            if found is None:
                del there[path]
            else:
                there[path] = found

    async def _recognize(self, paths: Collection[str], there: Mapping[str, RemoteStat]) -> None:
        """Mark remote files as tk's by their digests.

        After a send over the live channel without an answer, the cluster may have the new or the
        former file. Only the content tells which one it is.
        """
        ground, own = self._ground, self._ground.own_digests()
        unsure = {
            path: there[path]
            for path in paths
            if path in own and path in there and not ground.ours(path, there[path])
            # The content that was pulled is the job's, also where sending it has begun since.
            if path not in ground.pulled
        }
        foreign = await edits.remotely_edited(ground.remote, ground.remote_root, unsure, own)
        ground.in_flight |= unsure.keys() - foreign

    async def _look(self, paths: Collection[str]) -> dict[str, RemoteStat]:
        if self._ground.fresh:  # tk has just made the root: it is empty
            return {}
        ground, paths = self._ground, with_parents(paths)
        return await scripts.stat_paths(
            ground.remote, ground.remote_root, paths, claim=ground.claim
        )

    def _add_missing(self, scan: Scan, work: PassPlan, there: Mapping[str, RemoteStat]) -> None:
        """Send again what is no longer on the cluster as tk left it."""
        for path, row in self._ground.manifest.rows.items():
            if not row.sent or path in work.sends or scan.entries.get(path) != row.entry:
                continue
            if path not in there and path in self._ground.pulled and not self._ground.fresh:
                continue  # the job has removed its own file
            if not matches_sent(row, there.get(path)):
                work.sends[path] = row.entry
                work.digests[path] = row.digest

    def _look_again_at_conflicts(self, scan: Scan, work: PassPlan, wanted: Collection[str]) -> None:
        rows = self._ground.manifest.rows
        for path in wanted:
            row = rows.get(path)
            if row is None:
                continue
            if row.sent and scan.entries.get(path) == row.entry and path not in work.sends:
                work.sends[path] = row.entry
                work.digests[path] = row.digest

    async def _set_conflicts_apart(
        self, work: PassPlan, there: Mapping[str, RemoteStat], checked: Collection[str]
    ) -> set[str]:
        """Take files out of `work` that were changed there since tk sent them; return them."""
        rows = self._ground.manifest.rows
        doubted = self._ground.conflicts.union(checked)
        suspects = edits.suspects(work.sends, rows, there, doubted)
        pulled = {path for path in work.sends.keys() & there.keys() if path in self._ground.pulled}
        suspects = (suspects - self._ground.in_flight) | pulled
        edited = await edits.remotely_edited(
            self._ground.remote,
            self._ground.remote_root,
            {path: there[path] for path in suspects},
            {
                path: (*_sent(rows.get(path), path in pulled), work.digests[path])
                for path in suspects
            },
        )
        work.same = (suspects & pulled) - edited
        # Only touched, or equal to the laptop's file: counts as tk's.
        self._ground.in_flight |= suspects - edited - work.same
        work.overruled &= edited
        conflicts = edited - work.overruled
        for path in conflicts:
            work.sends.pop(path, None)
        return conflicts

    async def _delete(self, paths: Collection[str], there: Mapping[str, RemoteStat]) -> PassResult:
        """Remove the paths that only tk has written. Those neither failed nor kept are gone."""
        rows, result = self._ground.manifest.rows, PassResult()
        files, dirs = set(), set()
        for path in paths:
            row, found = rows[path], there.get(path)
            if found is None:
                continue
            if row.entry.kind == DIR:
                if row.made and found.kind == DIR:
                    dirs.add(path)
            elif found.kind != DIR and self._ground.ours(path, found):
                files.add(path)
            else:
                result.kept.append(path)
                self._ground.keep_edit(path)
        complaint = await scripts.remove_files(self._ground.remote, self._ground.remote_root, files)
        await scripts.remove_dirs(self._ground.remote, self._ground.remote_root, dirs)
        if complaint is not None:
            left = await scripts.stat_paths(self._ground.remote, self._ground.remote_root, files)
            stuck = {path for path in files if path in left}
            result.failed.update(dict.fromkeys(stuck, f"can't be deleted: {complaint}"))
        result.deleted = len(files - result.failed.keys())
        for path in sorted(files - result.failed.keys()):
            result.name(path)
        await asyncio.to_thread(self._ground.gone, set(paths) - result.failed.keys())
        return result

    async def _send(
        self, scan: Scan, work: PassPlan, there: Mapping[str, RemoteStat]
    ) -> PassResult:
        if not work.sends:
            return PassResult()
        foreign = {
            path
            for path in work.sends
            if path in there
            and work.sends[path].kind != DIR
            and not self._ground.ours(path, there[path])
        } | (work.overruled & work.sends.keys())
        foreign -= work.same
        plain = work.sends.keys() - foreign - work.same
        await asyncio.to_thread(self._ground.manifest.put, self._intents(work, plain, there))
        self._ground.in_flight |= plain
        failed: dict[str, str] = {}
        replaced: list[str] = []
        backup_dir = None
        if plain:
            size = _size(work, plain)
            progress = self._ground.progress = Progress.of(plain, work.sends)
            try:
                pushing = self._rsync.push(
                    plain,
                    self._ground.remote_root,
                    size_bytes=size,
                    known=Known(work.sends, self._note_other),
                    on_output=progress.feed if progress is not None else None,
                )
                result = await self._during(pushing)
            finally:
                self._ground.progress = None
            if result.partial:
                failed |= await self._failures(plain, size, result.error_text)
        if foreign:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            backup_dir = f"{self._ground.remote_root.rstrip('/')}/{REPLACED_DIR}/{stamp}"
            size = _size(work, foreign)
            result = await self._rsync.adopt(
                foreign, self._ground.remote_root, backup_dir=backup_dir, size_bytes=size
            )
            if result.partial:
                failed |= await self._failures(foreign, size, result.error_text)
            replaced = _replaced(result.stdout, foreign - failed.keys())
        written = plain.union(replaced) - failed.keys()
        await asyncio.to_thread(self._ground.manifest.pulled.discard, written)
        sent = await asyncio.to_thread(self._confirm, scan, work, failed, there)
        await self._note_there(work, sent.changing & plain, failed.keys())
        if replaced:
            sent.replaced, sent.replaced_dir = replaced, backup_dir
        return sent

    def _intents(
        self, work: PassPlan, paths: Collection[str], there: Collection[str]
    ) -> dict[str, ManifestEntry]:
        """Return the records of what is about to be sent.

        Not `sent` until it has arrived: after a kill -9 in the middle, the next session must not
        mistake these files for edits on the cluster.
        """
        intents, rows = {}, self._ground.manifest.rows
        for path in paths:
            row, entry, text = rows.get(path), work.sends[path], work.digests[path]
            if row is None or not _stays(row, entry) or path in self._ground.pulled:
                intent = ManifestEntry(entry, text, made=_is_ours(row, entry, path in there))
            else:
                intent = row._replace(sent=False)
            intents[path] = self._ground.attempt(path, intent, text)
        return intents

    async def _note_other(self, digests: Mapping[str, str]) -> None:
        """Record content that is about to be sent instead of what was hashed.

        After a kill -9, the next session could not tell it from an edit on the cluster.
        """
        self._other |= digests
        ground, rows = self._ground, self._ground.manifest.rows
        notes = {path: ground.attempt(path, rows[path], text) for path, text in digests.items()}
        await asyncio.to_thread(ground.manifest.put, notes)

    async def _note_there(self, work: PassPlan, paths: set[str], failed: Set[str]) -> None:
        """Record what is there now of paths that changed after they were hashed."""
        ground, digests = self._ground, self._other
        if self._rsync.sends_deltas and paths:  # rsync does not say what it has read
            sends = work.sends
            stats = {path: RemoteStat(sends[path].kind, sends[path].size, 0) for path in paths}
            digests = await edits.remote_digests(ground.remote, ground.remote_root, stats)
        # A login host may answer about others.
        there = {path: digests[path] for path in paths - failed if path in digests}
        notes = {path: ground.other_is_there(path, text) for path, text in there.items()}
        if notes:
            await asyncio.to_thread(ground.manifest.put, notes)

    async def _failures(self, paths: Collection[str], size: int, cause: str) -> dict[str, str]:
        left = await self._rsync.differing(paths, self._ground.remote_root, size_bytes=size)
        return {path: cause for path in left if path in paths}

    def _confirm(
        self,
        scan: Scan,
        work: PassPlan,
        failed: Mapping[str, str],
        there: Mapping[str, RemoteStat],
    ) -> PassResult:
        """Record what arrived, but only files unchanged on the laptop since they were read."""
        rows, done, out = self._ground.manifest.rows, {}, PassResult()
        for path, entry in work.sends.items():
            try:
                unchanged = lstat(self._ground.local_root, path) == entry
            except OSError:
                unchanged = False
            if not unchanged:
                out.changing.add(path)
            elif path in failed:
                out.failed[path] = failed[path]
            else:
                row = rows.get(path)
                made = row.made if row and row.entry.kind == DIR else path not in there
                done[path] = ManifestEntry(
                    entry,
                    work.digests[path],
                    sent=True,
                    # Sent after it was read. A later write in the same clock tick shows in the
                    # digest.
                    racy=racy(entry, scan.started_ns),
                    made=entry.kind == DIR and made,
                )
                out.arrived(path, entry)
        self._ground.manifest.put(done)
        for path in done:
            self._ground.arrived(path)
        return out


def _stays(row: ManifestEntry, entry: Entry) -> bool:
    """Return True if the old row tells more about the remote file: sent, or of another kind."""
    return row.sent or (row.entry.kind == DIR) != (entry.kind == DIR)


def _sent(row: ManifestEntry | None, is_pulled: bool) -> tuple[str, ...]:
    return () if row is None or is_pulled else (row.digest,)


def _is_ours(row: ManifestEntry | None, entry: Entry, is_there: bool) -> bool:
    """Return True if tk makes this directory, or an earlier attempt may have made it."""
    return entry.kind == DIR and (not is_there or (row is not None and row.made))


def _size(work: PassPlan, paths: Collection[str]) -> int:
    return sum(work.sends[path].size for path in paths)


def _replaced(stdout: bytes, foreign: Collection[str]) -> list[str]:
    """Return the foreign files whose content was replaced.

    Those are output lines of a transfer or a remade symlink, not of attributes alone (`.f..t....`).
    """
    moved = b"\n".join(line for line in stdout.split(b"\n") if line[:1] in b"<c" and line)
    return sorted(path for path in itemized(moved) if path in foreign)
