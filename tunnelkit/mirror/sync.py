"""One pass: look at both ends, decide, delete and send, write down what was done.

The order matters. What a path is on the cluster is looked at right before anything is
done to it: tk only deletes or overwrites in silence what is still as tk left it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror import plan, shell
from tunnelkit.mirror.base import Remote
from tunnelkit.mirror.ignore import REPLACED_DIR
from tunnelkit.mirror.manifest import Manifest, Row
from tunnelkit.mirror.rsync import Rsync, itemized
from tunnelkit.mirror.scan import DIR, LINK, Entry, Scan, Scanner, digest, lstat, racy
from tunnelkit.mirror.shell import RemoteStat

_NS = 1_000_000_000


@dataclass(slots=True)
class Outcome:
    """What one pass did. changing: paths that changed while they were read or sent.
    failed: paths that can't be read or written, and why."""

    sent: int = 0
    sent_bytes: int = 0
    deleted: int = 0
    kept: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    replaced_dir: str | None = None
    changing: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    scan_s: float = 0.0


@dataclass(slots=True)
class _Work:
    """What a pass has to do, once the files were read."""

    sends: dict[str, Entry] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    refreshed: dict[str, Row] = field(default_factory=dict)
    deletes: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)


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
        work = await asyncio.to_thread(self._read, scan, difference, force, out)
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
        scan, relative = self.last_scan, os.path.relpath(path, self._scanner.root)
        if scan is None or relative == "." or relative.startswith("../"):
            return True
        base = ""
        *above, name = relative.split("/")
        for part in above:
            rules = scan.rules.get(base)
            if rules is None:
                return True  # a new directory
            if rules.ignored(base + part, part, True):
                return False
            base += part + "/"
        rules = scan.rules.get(base)
        return rules is None or not rules.ignored(base + name, name, False)

    def _read(
        self, scan: Scan, difference: plan.Difference, force: Collection[str], out: Outcome
    ) -> _Work:
        """Digests of what may have changed, and the fate of what is absent (blocking)."""
        root, rows, work = self._scanner.root, self._manifest.rows, _Work()
        for path, entry in difference.changed.items():
            seen_ns = time.time_ns()
            try:
                text = "" if entry.kind == DIR else digest(root, path, entry.kind)
                now = lstat(root, path)
            except FileNotFoundError:
                now = None
            except OSError as error:
                out.failed[path] = f"can't be read: {error.strerror or error}"
                continue
            if now != entry:
                out.changing.add(path)
                continue
            row = rows.get(path)
            if path not in force and plan.same_content(row, entry, text):
                assert row is not None
                work.refreshed[path] = row._replace(entry=entry, racy=racy(entry, seen_ns))
            else:
                work.sends[path] = entry
                work.digests[path] = text
        for path in difference.absent:
            gone = self._gone(path, scan)
            if gone:
                work.deletes.add(path)
            elif gone is False:
                work.forgotten.add(path)
        return work

    def _gone(self, path: str, scan: Scan) -> bool | None:
        """Why the scan lacks a path: True, it was deleted; False, it is ignored now (what is
        on the cluster stays there); None, nobody can tell."""
        for above in plan.parents(path):
            if above in scan.entries and scan.entries[above].kind != DIR:
                return True  # lstat would follow the symlink that replaced its directory
            if above in scan.unreadable:
                return None
        try:
            os.lstat(os.path.join(self._scanner.root, path))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return None
        return False

    def _note(self, rows: Mapping[str, Row], forgotten: Collection[str]) -> None:
        self._manifest.put(rows)
        self._manifest.drop(forgotten)

    async def _apply(self, scan: Scan, work: _Work, out: Outcome, *, repair: bool) -> None:
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
        await self._send(work, there, out)
        await self._delete(work.deletes - early, there, out)
        self._fresh = False

    async def _look(self, paths: Collection[str]) -> dict[str, RemoteStat]:
        if self._fresh:  # we have just made the root: nothing can be in it
            return {}
        return await shell.survey(self._remote, self._remote_root, plan.with_parents(paths))

    def _add_missing(self, scan: Scan, work: _Work, there: Mapping[str, RemoteStat]) -> None:
        """Send again what is no longer on the cluster as we left it."""
        for path, row in self._manifest.rows.items():
            if not row.sent or path in work.sends or scan.entries.get(path) != row.entry:
                continue
            if not _as_sent(row, there.get(path)):
                work.sends[path] = row.entry
                work.digests[path] = row.digest

    def _drop_blocked(self, work: _Work, there: Mapping[str, RemoteStat], out: Outcome) -> None:
        """Take out of `work` what would go through a symlink on the cluster, or replace a
        file that tk did not put there by a directory."""
        rows = self._manifest.rows
        needed = plan.with_parents(work.sends.keys() | work.deletes) - work.deletes
        blocked: dict[str, str] = {}
        for path in needed:
            found, entry, row = there.get(path), work.sends.get(path), rows.get(path)
            if found is None or found.kind == DIR or (entry is not None and entry.kind != DIR):
                continue
            if entry is not None and row is not None and _as_sent(row, found):
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
            elif _as_sent(row, found):
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
        await asyncio.to_thread(self._manifest.drop, done)
        return done - set(kept)

    async def _send(self, work: _Work, there: Mapping[str, RemoteStat], out: Outcome) -> None:
        if not work.sends:
            return
        rows = self._manifest.rows
        foreign = {
            path
            for path in work.sends
            if path in there
            and work.sends[path].kind != DIR
            and not (path in rows and rows[path].sent and _as_sent(rows[path], there[path]))
        }
        intents = {
            path: Row(entry, work.digests[path], made=entry.kind == DIR and path not in there)
            for path, entry in work.sends.items()
            if path not in foreign and not (path in rows and rows[path].sent)
        }
        await asyncio.to_thread(self._manifest.put, intents)
        plain = work.sends.keys() - foreign
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
        work: _Work,
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


def scan_ns(scan: Scan | None) -> int:
    return scan.started_ns if scan is not None else 0


def _size(work: _Work, paths: Collection[str]) -> int:
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
