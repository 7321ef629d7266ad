"""One pass: look at both ends, decide, delete and send, write down what was done.

The order matters. What a path is on the cluster is looked at right before anything is
done to it: tk only deletes or overwrites in silence what is still as tk left it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from tunnelkit.mirror import conflicts, local, obstacles, plan, shell
from tunnelkit.mirror.base import MirrorHalted, Remote
from tunnelkit.mirror.conflicts import as_sent
from tunnelkit.mirror.ignore import REPLACED_DIR
from tunnelkit.mirror.limits import DELETE_LIMIT_FILES, check_deletes
from tunnelkit.mirror.local import Outcome, Work
from tunnelkit.mirror.manifest import Manifest, Row
from tunnelkit.mirror.owner import Claim
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.rsync import Rsync, itemized
from tunnelkit.mirror.scan import DIR, Entry, Scan, Scanner, lstat, racy
from tunnelkit.mirror.shell import RemoteStat
from tunnelkit.mirror.sizes import SizeWatch


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
        delete_limit: int = DELETE_LIMIT_FILES,
        sizes: SizeWatch | None = None,
        claim: Claim | None = None,
    ) -> None:
        self._remote = remote
        self._rsync = rsync
        self._scanner = scanner
        self._manifest = manifest
        self._remote_root = remote_root
        self._fresh = fresh
        self._delete_limit = delete_limit
        self._sizes = sizes
        self._claim = claim
        self._displaced: MirrorHalted | None = None
        #: sent, but not yet known to have arrived as they are here: what is there is ours
        self._in_flight: set[str] = set()
        self.last_scan: Scan | None = None
        #: paths known to need sending: for the status, and for the message of a timeout
        self.pending: frozenset[str] = frozenset()
        #: the big transfer that is under way
        self.progress: Progress | None = None
        #: mirrored paths that were changed on the cluster: looked at again in each pass
        self.conflicts: frozenset[str] = frozenset()

    async def run(
        self,
        *,
        repair: bool = False,
        allow_deletes: bool = False,
        force: Collection[str] = (),
        ours: Collection[str] = (),
        on_pending: Callable[[frozenset[str]], None] = lambda paths: None,
    ) -> Outcome:
        """One pass. repair: also look whether all that was sent is still there. force: send
        these again, unless their content there is not tk's. ours: conflicts in which the
        laptop's wins. on_pending: told what there is to do, before it is done. Raises
        MirrorHalted, ConnectionFailed, MirrorError, MissingProgram, TimeoutExpired."""
        if self._displaced is not None:  # for good: two who push in turns would be worse
            raise self._displaced.with_traceback(None)
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
            check_deletes(
                rows,
                work.deletes,
                scan.entries,
                sent_digests=(text for path, text in work.digests.items() if path not in rows),
                limit_files=self._delete_limit,
            )
        self.pending = frozenset({*work.sends, *work.deletes, *out.failed, *out.changing})
        await asyncio.to_thread(self._note, work.refreshed, work.forgotten)
        self._look_again_at_conflicts(scan, work)
        work.overruled = {*ours}
        if self._sizes is not None:
            self._sizes.look(work.sends, scan.entries)
        if work.sends or work.deletes or repair:
            on_pending(self.pending)
            await self._apply(scan, work, out, repair=repair, checked=force)
        self.pending = frozenset({*out.failed, *out.changing})
        return out

    def interesting(self, path: str) -> bool:
        """Whether an event at this absolute path may matter. Called in any thread."""
        return local.interesting(self._scanner.root, self.last_scan, path)

    def _note(self, seen: Mapping[str, tuple[Entry, bool]], forgotten: Collection[str]) -> None:
        self._manifest.refresh(seen)
        self._manifest.drop(forgotten)

    async def _apply(
        self, scan: Scan, work: Work, out: Outcome, *, repair: bool, checked: Collection[str]
    ) -> None:
        rows = self._manifest.rows
        touched = {*work.sends, *work.deletes}
        if repair:
            touched.update(path for path in rows if path in scan.entries)
        there = await self._look(touched)
        if repair:
            self._add_missing(scan, work, there)
        obstacles.drop_blocked(work, there, rows, self._ours, out)
        await self._set_conflicts_apart(work, there, out, checked)
        await asyncio.to_thread(self._manifest.drop, work.forgotten)
        early = plan.swaps(work.deletes, work.sends, rows)
        removed = await self._delete(early, there, out)
        for path in removed:
            there.pop(path, None)
        turned = {path for path in early & work.sends.keys() if work.sends[path].kind != DIR}
        there |= await shell.survey(self._remote, self._remote_root, turned)
        obstacles.keep_dirs(work, there, out)
        await self._send(work, there, out)
        await self._delete(work.deletes - early, there, out)
        self._fresh = False

    async def _look(self, paths: Collection[str]) -> dict[str, RemoteStat]:
        if self._fresh:  # we have just made the root: nothing can be in it
            return {}
        paths = plan.with_parents(paths)
        try:
            return await shell.survey(self._remote, self._remote_root, paths, claim=self._claim)
        except MirrorHalted as error:
            self._displaced = error
            raise

    def _add_missing(self, scan: Scan, work: Work, there: Mapping[str, RemoteStat]) -> None:
        """Send again what is no longer on the cluster as we left it."""
        for path, row in self._manifest.rows.items():
            if not row.sent or path in work.sends or scan.entries.get(path) != row.entry:
                continue
            if not as_sent(row, there.get(path)):
                work.sends[path] = row.entry
                work.digests[path] = row.digest

    def _look_again_at_conflicts(self, scan: Scan, work: Work) -> None:
        rows = self._manifest.rows
        self.conflicts = frozenset(path for path in self.conflicts if path in rows)
        for path in self.conflicts:
            row = rows[path]
            if row.sent and scan.entries.get(path) == row.entry and path not in work.sends:
                work.sends[path] = row.entry
                work.digests[path] = row.digest

    async def _set_conflicts_apart(
        self, work: Work, there: Mapping[str, RemoteStat], out: Outcome, checked: Collection[str]
    ) -> None:
        """Take out of `work` what was changed on the cluster since tk put it there."""
        rows = self._manifest.rows
        doubted = self.conflicts.union(checked)
        suspects = conflicts.suspects(work.sends, rows, there, doubted) - self._in_flight
        edited = await conflicts.edited(
            self._remote,
            self._remote_root,
            {path: there[path] for path in suspects},
            {path: (rows[path].digest, work.digests[path]) for path in suspects},
        )
        # Only touched, or the same as here already: as good as ours.
        self._in_flight |= suspects - edited
        work.overruled &= edited
        out.conflicts |= edited - work.overruled
        for path in out.conflicts:
            del work.sends[path]
        self.conflicts = frozenset(out.conflicts)

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
        for path in sorted(files - stuck):
            out.name(path)
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
        } | (work.overruled & work.sends.keys())
        intents = {
            path: Row(entry, work.digests[path], made=entry.kind == DIR and path not in there)
            for path, entry in work.sends.items()
            if path not in foreign and not (path in rows and rows[path].sent)
        }
        await asyncio.to_thread(self._manifest.put, intents)
        plain = work.sends.keys() - foreign
        # Not `sent` until it has arrived: whoever comes after a kill -9 in the middle must not
        # take what we leave there for somebody's edit.
        opened = {
            path: rows[path]._replace(sent=False)
            for path in plain
            if path in rows and rows[path].sent
        }
        await asyncio.to_thread(self._manifest.put, opened)
        self._in_flight |= plain
        failed: dict[str, str] = {}
        if plain:
            size = _size(work, plain)
            progress = self.progress = Progress.of(plain, work.sends)
            try:
                result = await self._rsync.push(
                    plain,
                    self._remote_root,
                    size_bytes=size,
                    on_output=progress.feed if progress is not None else None,
                )
            finally:
                self.progress = None
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
                    out.name(path)
        self._manifest.put(done)
        self._in_flight -= done.keys()

    def _ours(self, path: str, found: RemoteStat) -> bool:
        """Whether what is there is what tk put there, and may go without a word."""
        if path in self._in_flight:
            return True
        row = self._manifest.rows.get(path)
        return row is not None and as_sent(row, found)


def scan_ns(scan: Scan | None) -> int:
    return scan.started_ns if scan is not None else 0


def _size(work: Work, paths: Collection[str]) -> int:
    return sum(work.sends[path].size for path in paths)


def _replaced(stdout: bytes, foreign: Collection[str]) -> list[str]:
    """Which foreign files' content gave way: lines of a transfer or a remade symlink, not
    those of attributes alone (`.f..t....`)."""
    moved = b"\n".join(line for line in stdout.split(b"\n") if line[:1] in b"<c" and line)
    return sorted(path for path in itemized(moved) if path in foreign)
