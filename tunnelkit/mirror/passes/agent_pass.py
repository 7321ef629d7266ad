"""A pass over the live channel: one batch, one generation, no round trip before writing.

The agent compares the remote files with what tk left there. So a saved file is sent as soon as it
was read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror.agent.batch_reader import deletion, slices
from tunnelkit.mirror.agent.channel import BatchAnswer, MirrorChannel
from tunnelkit.mirror.agent.path_header import ExpectedState, Slice
from tunnelkit.mirror.agent.read_ahead import ReadAhead
from tunnelkit.mirror.context import PassResult, SyncContext
from tunnelkit.mirror.passes import local_changes
from tunnelkit.mirror.passes.delete_guard import check_deletes, is_new, may_be_moved, may_halt
from tunnelkit.mirror.passes.options import During, OnPending, PassOptions, awaited
from tunnelkit.mirror.passes.size_warnings import SizeWatch
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.record import diff
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import DIR, Entry, Scan

_FEW_ROWS = 10
#: A first copy need not appear at once. What has been published stays if the link breaks.
_FIRST_COPY_BYTES = 64 << 20
#: A big file's transfer waits so long for a lost link, and then goes on.
_OUTAGE_S = 300.0


@dataclass(slots=True)
class _Batch:
    """The batch that is being sent.

    sends: (entry, digest, racy) by path.
    news: paths never sent before.
    rest: parcels to send together with the commit.
    is_big: True if it has a big file, which goes on where it was after a lost link.
    The last field counts the paths already reported as pending.
    """

    number: int = 0
    sends: dict[str, tuple[Entry, str, bool]] = field(default_factory=dict)
    news: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    retried: set[str] = field(default_factory=set)
    size_bytes: int = 0
    rest: bytes = b""
    began: bool = False
    is_big: bool = False
    reported: int = 0


class AgentPass:
    """Sends the changes of a diff over one live channel. One `run` at a time.

    outlasts_outage: wait for a lost link, as with a big file.
    """

    def __init__(
        self,
        ground: SyncContext,
        live: MirrorChannel,
        sizes: SizeWatch,
        *,
        outlasts_outage: bool = False,
    ) -> None:
        self._ground = ground
        self.live = live
        self._sizes = sizes
        self._outlasts_outage = outlasts_outage
        self._during: During = awaited
        self._batch = _Batch()
        #: of the `run` under way
        self._result = PassResult()

    @property
    def _outage_s(self) -> float:
        """Return how long a lost link may be away, in seconds."""
        return _OUTAGE_S if self._outlasts_outage or self._batch.is_big else 0.0

    @property
    def staged(self) -> Mapping[str, Entry]:
        """Entries that `stage` has sent, by path, as they were read."""
        return {path: entry for path, (entry, _, _) in self._batch.sends.items()}

    async def stage(self, scan: Scan, difference: diff.Diff) -> None:
        """Send without publishing. `run` continues, and reports the files that can't be read."""
        ground = self._ground
        known = ExpectedState(ground.manifest.rows, ground.own_digests(), pulled=ground.pulled)
        await self._send(scan, difference, known, lambda paths: None, whole=True)

    async def add(self, piece: Slice, on_pending: OnPending) -> None:
        """Send a slice that was already read, without publishing. Raises ConnectionFailed."""
        await self._send_slice(piece, on_pending, whole=True)

    def abort(self) -> None:
        """Make the agent discard what is not published."""
        batch, self._batch = self._batch, _Batch()
        if batch.began:
            self.live.abort(batch.number)

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
        ground, rows = self._ground, self._ground.manifest.rows
        result = self._result = PassResult()  # without what `stage` has found: it is read again
        self._warn(scan, difference)
        own = ground.own_digests()
        known = ExpectedState(
            rows, own, forced=wishes.force | wishes.again, ours=wishes.ours, pulled=ground.pulled
        )
        for path in wishes.again:
            if path in scan.entries:
                difference.changed.setdefault(path, scan.entries[path])
        self._keep_staged(scan, difference, wishes)
        if ground.progress is None:
            ground.progress = Progress.of(difference.changed, difference.changed)
        try:
            if not wishes.allow_deletes and may_halt(len(difference.absent), ground.delete_limit):
                await during(asyncio.to_thread(self._look_for_halt, scan, difference))
            await self._send(scan, difference, known, on_pending)
            await self._delete(scan, difference, known, wishes)
            await self._commit(on_pending)
        except BaseException:
            self.abort()
            raise
        finally:
            ground.progress = None
        ground.fresh = False
        return result

    def _look_for_halt(self, scan: Scan, difference: diff.Diff) -> None:
        """Raise MirrorHalted before anything is sent (in a thread).

        A halted mirror tries again and again, and each time would send all for nothing.
        """
        root, rows = self._ground.local_root, self._ground.manifest.rows
        missing = local_changes.classify_missing(root, difference.absent, scan)
        deletes = missing.deleted
        local_changes.spare(deletes, missing.ignored, self._ground.pulled)
        moved = may_be_moved(root, rows, difference.changed, deletes)
        self._check_deletes(scan, deletes, self._news() | moved)

    def _check_deletes(self, scan: Scan, deletes: set[str], news: Mapping[str, str]) -> None:
        check_deletes(
            {path: row for path, row in self._ground.manifest.rows.items() if path not in news},
            deletes,
            scan.entries,
            sent_digests=news.values(),
            limit_files=self._ground.delete_limit,
        )

    def _news(self) -> dict[str, str]:
        """Return the digests of the new files that the batch has so far."""
        sends = self._batch.sends
        return {path: sends[path][1] for path in self._batch.news if path in sends}

    def _keep_staged(self, scan: Scan, difference: diff.Diff, wishes: PassOptions) -> None:
        """Don't send staged files again that are still current.

        Discard all that is staged if a staged path is gone or has changed its kind, or if the user
        asked for special options.
        """
        sends, entries = self._batch.sends, scan.entries
        plain = not (wishes.force or wishes.again or wishes.ours)
        if not plain or any(
            path not in entries or entries[path].kind != entry.kind
            for path, (entry, _, _) in sends.items()
        ):
            self.abort()
            return
        for path, (entry, _, _) in sends.items():
            if difference.changed.get(path) == entry:
                del difference.changed[path]

    async def _commit(self, on_pending: OnPending) -> None:
        """Make the agent publish the batch, and record the results."""
        batch = self._batch
        if batch.number == 0:
            return
        batch.began = True
        paths = frozenset({*batch.sends, *batch.deletes})
        await self.live.commit(batch.number, batch.rest, paths=len(paths), outage_s=self._outage_s)
        on_pending(paths)
        answer = await self.live.answer(
            batch.number,
            files=len(batch.sends),
            size_bytes=batch.size_bytes,
            outage_s=self._outage_s,
        )
        digests = await asyncio.to_thread(self._record, batch, answer)
        self.live.recorded(batch.number, digests)
        self._batch = _Batch()

    def _warn(self, scan: Scan, difference: diff.Diff) -> None:
        rows = self._ground.manifest.rows
        news = {
            path: entry
            for path, entry in difference.changed.items()
            if path not in rows or rows[path].entry.size != entry.size
        }
        self._sizes.look(news, scan.entries)

    async def _send(
        self,
        scan: Scan,
        difference: diff.Diff,
        known: ExpectedState,
        on_pending: OnPending,
        *,
        whole: bool = False,
    ) -> None:
        """Read slice by slice. The next slices are read while one is being sent."""
        pieces = slices(self._ground.local_root, scan, difference, known)
        if self._ground.quick and local_changes.is_little(difference.changed.values()):
            for piece in pieces:  # quicker than a thread
                await self._send_slice(piece, on_pending, whole=whole)
            return
        reading = ReadAhead(pieces)
        try:
            last = False
            while not last:
                piece = await self._during(reading.next())
                last = piece.last
                await self._send_slice(piece, on_pending, whole=whole)
        finally:
            await reading.close()

    async def _send_slice(self, piece: Slice, on_pending: OnPending, *, whole: bool) -> None:
        self._result.changing |= piece.changing
        self._result.failed |= piece.failed
        few = len(piece.sends) + len(piece.refreshed) <= _FEW_ROWS
        # Recorded before the agent may have staged it: after a kill the record shows where
        # leftovers may be.
        if few:
            self._batch.news |= self._intend(piece)  # quicker than a thread
        else:
            self._batch.news |= await asyncio.to_thread(self._intend, piece)
        if piece.data:
            batch = self._begin()
            batch.is_big |= piece.goes_on
            batch.sends.update(piece.sends)
            for path in piece.dropped:
                del batch.sends[path]
            batch.size_bytes += len(piece.data)
            if few and piece.last and not whole:
                batch.rest += piece.data  # sent with the commit that follows at once
            else:
                await self._write(piece.data)
            # Report only when the number has doubled: reporting all paths with every slice costs
            # more than reading the slice.
            if not piece.last and len(batch.sends) >= 2 * batch.reported:
                batch.reported = len(batch.sends)
                on_pending(frozenset(batch.sends))
        if self._ground.progress is not None:
            self._ground.progress.add(len(piece.sends), piece.size_bytes)
        much = self._batch.size_bytes > _FIRST_COPY_BYTES
        if self._ground.fresh and not whole and much and not piece.goes_on:
            await self._commit(on_pending)

    def _intend(self, piece: Slice) -> set[str]:
        """Record what is about to be published, and return the paths that are new.

        After a kill -9 in the middle, the next session thus does not mistake these files for edits
        on the cluster.
        """
        ground, manifest = self._ground, self._ground.manifest
        rows, news = manifest.rows, set()
        intents = {}
        for path, (entry, text, _) in piece.sends.items():
            row = rows.get(path)
            if is_new(row, text):
                news.add(path)
            if row is not None and row.made and not row.sent:
                self._batch.retried.add(path)
            stays = row is not None and (row.entry.kind == DIR) == (entry.kind == DIR)
            # tk makes a directory that takes a file's place.
            made = row.made if row is not None and stays else entry.kind == DIR
            if row is None or (stays and not row.sent) or path in ground.pulled:
                intent = ManifestEntry(entry, text, made=made)
            else:  # the remote content may still be the old one
                intent = row._replace(sent=False, made=made)
            intents[path] = ground.attempt(path, intent, text)
        if ground.fresh and len(intents) > _FEW_ROWS:
            manifest.put(intents)  # slower, but a first copy waits for the agent until its end
        else:
            manifest.intend(intents)
        manifest.refresh(piece.refreshed)
        return news

    def _begin(self) -> _Batch:
        batch = self._batch
        if batch.number == 0:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            batch.number, batch.rest = self.live.begin(stamp)
        return batch

    async def _write(self, data: bytes) -> None:
        batch = self._batch
        data, batch.rest, batch.began = batch.rest + data, b"", True
        await self._during(self.live.write(data, outage_s=self._outage_s))

    async def _delete(
        self,
        scan: Scan,
        difference: diff.Diff,
        known: ExpectedState,
        wishes: PassOptions,
    ) -> None:
        if not difference.absent:
            return
        batch = self._batch
        deletes, forgotten, back = await asyncio.to_thread(
            local_changes.classify_missing, self._ground.local_root, difference.absent, scan
        )
        local_changes.spare(deletes, forgotten, self._ground.pulled)
        self._result.changing |= back
        if not wishes.allow_deletes:
            self._check_deletes(scan, deletes, self._news())
        await asyncio.to_thread(self._ground.manifest.drop, forgotten)
        parcels = b"".join(deletion(path, known) for path in sorted(deletes, reverse=True))
        if parcels:
            batch.deletes = deletes
            self._begin().rest += parcels
        else:
            await asyncio.to_thread(self._ground.manifest.drop, deletes)

    def _record(self, batch: _Batch, answer: BatchAnswer) -> dict[str, str]:
        """Record the result of each path (in a thread). Return the digests of arrived paths."""
        manifest, results, out = self._ground.manifest, answer.results, self._result
        done, digests, replaced = {}, {}, []
        written: list[str] = []
        for path, (entry, text, is_racy) in batch.sends.items():
            state, why = results.get(path, ("", ""))
            if state == "conflict":
                out.conflicts.add(path)
            elif state == "absent":
                out.changing.add(path)  # the next pass sends the whole file
            elif state in ("failed", "blocked"):
                out.failed[path] = why
            else:
                row = manifest.rows[path]
                # If an earlier attempt may have made it, it exists already and is tk's.
                old = state == "same" and path not in batch.retried
                made = entry.kind == DIR and row.made and not old
                done[path] = ManifestEntry(entry, text, sent=True, racy=is_racy, made=made)
                digests[path] = text
                out.arrived(path, entry)
                if state == "replaced":
                    replaced.append(path)
                if state != "same":
                    written.append(path)
        # A conflict is no interrupted transfer: the row of what tk put there stays as it was.
        undone = {
            path: manifest.rows[path]._replace(sent=True, tried="")
            for path in out.conflicts & batch.sends.keys()
            if manifest.rows[path].digest and path not in manifest.pulled
        }
        manifest.pulled.discard(written)
        manifest.put({**done, **undone})
        self._gone(batch, results)
        for path in (*done, *undone):
            self._ground.arrived(path)
        if replaced:
            out.replaced += sorted(replaced)
            out.replaced_dir = answer.replaced_dir
        return digests

    def _gone(self, batch: _Batch, results: Mapping[str, tuple[str, str]]) -> None:
        rows, dropped, out = self._ground.manifest.rows, set(), self._result
        for path in sorted(batch.deletes):
            state, why = results.get(path, ("", ""))
            if state == "failed":
                out.failed[path] = f"can't be deleted: {why}"
                continue
            dropped.add(path)
            if state in ("kept", "conflict", "blocked"):
                out.kept.append(path)
                self._ground.keep_edit(path)
            elif rows[path].entry.kind != DIR:
                out.deleted += 1
                out.name(path)
        self._ground.gone(dropped)
