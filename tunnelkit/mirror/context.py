"""State that all passes over one remote root share."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tunnelkit.mirror.api import DELETE_LIMIT_FILES, NAMED, FileAgent, SyncReport, name_paths
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.record.pulled_files import PulledFiles
from tunnelkit.mirror.remote.edits import matches_sent
from tunnelkit.mirror.remote.owner import OwnerRecord
from tunnelkit.mirror.remote.scripts import RemoteStat
from tunnelkit.mirror.tree.name_collisions import EXACT, CaseFolding
from tunnelkit.mirror.tree.scanner import DIR, Entry
from tunnelkit.remote_script import RemoteHost
from tunnelkit.text_format import shown

_TRIED_LIMIT = 8
#: For so long, data that was sent over a link that then broke may still arrive: from a socket's
#: buffer, or by an rsync on the login host that has not noticed the break.
_LATE_S = 600.0


@dataclass(slots=True)
class PassResult:
    """The result of one pass, or of a part of it.

    changing: paths that changed while they were read or sent. failed: paths that can't be read
    or written, with the reason. conflicts: paths that were changed on the cluster.
    """

    sent: int = 0
    sent_bytes: int = 0
    deleted: int = 0
    kept: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    replaced_dir: str | None = None
    changing: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)
    #: True if the whole tree was scanned, and how long that took
    scanned: bool = False
    scan_s: float = 0.0
    #: some of the files that were sent or deleted, for the user
    names: list[str] = field(default_factory=list)

    def name(self, path: str) -> None:
        """Note a file that was sent or deleted."""
        if len(self.names) < NAMED:
            self.names.append(path)

    def warnings(self) -> Iterator[str]:
        """Yield what became of files there that are not tk's."""
        if self.replaced:
            where = f"it is kept in {shown(self.replaced_dir or '')}"
            yield f"{name_paths(self.replaced)}: other content was there, and is replaced; {where}"
        if self.kept:
            yield f"{name_paths(self.kept)}: deleted here, but changed there, and left there"

    def arrived(self, path: str, entry: Entry) -> None:
        """Count a path that was sent."""
        if entry.kind != DIR:
            self.sent += 1
            self.sent_bytes += entry.size
            self.name(path)

    def add(self, part: PassResult) -> None:
        """Add the result of a later part of the pass."""
        self.sent += part.sent
        self.sent_bytes += part.sent_bytes
        self.deleted += part.deleted
        self.kept += part.kept
        self.replaced += part.replaced
        self.replaced_dir = part.replaced_dir or self.replaced_dir
        self.changing |= part.changing
        self.failed |= part.failed
        self.conflicts |= part.conflicts
        self.names = [*self.names, *part.names][:NAMED]

    def joined(self, report: SyncReport) -> SyncReport:
        """Return the report of earlier passes with this result."""
        return replace(
            report,
            sent=report.sent + self.sent,
            sent_bytes=report.sent_bytes + self.sent_bytes,
            deleted=report.deleted + self.deleted,
            kept=(*report.kept, *self.kept),
            replaced=(*report.replaced, *self.replaced),
            replaced_dir=self.replaced_dir or report.replaced_dir,
        )


@dataclass(slots=True)
class SyncContext:
    """One local root and its remote root.

    remote_root: absolute, symlinks resolved. fresh: tk has just made it, so it is empty.
    folding: the names that its file system takes for equal. delete_limit: number of files that
    may be deleted at once. quick: the local root is on a local disk, so a file that was just
    written is in memory.
    """

    remote: RemoteHost
    local_root: str
    remote_root: str
    manifest: Manifest
    claim: OwnerRecord | None = None
    fresh: bool = False
    folding: CaseFolding = EXACT
    delete_limit: int = DELETE_LIMIT_FILES
    quick: bool = False
    #: True until the first check if the record is of another disk (record/other_disk.py)
    other_disk: bool = False
    #: sent by rsync, arrival not confirmed yet: a file there is tk's
    in_flight: set[str] = field(default_factory=set)
    #: by path, digests that were sent without an answer: the file there may have one of them; a
    #: file with another digest may be somebody's edit
    tried: dict[str, Collection[str]] = field(default_factory=dict)
    #: by path, the digest that was sent last without an answer
    unanswered: dict[str, str] = field(default_factory=dict)
    #: by path, digests that may still arrive after a later send, and until when
    late: dict[str, dict[str, float]] = field(default_factory=dict)
    #: True if a batch has no answer, since its channel broke or the turn changed: it may still be
    #: published. owed_by: by this agent, if it is known
    is_owed: bool = False
    owed_by: FileAgent | None = None
    #: until when (monotonic) an rsync whose link broke may go on there
    straggling_until: float = 0.0
    #: True until a pass takes note of it: a killed session may have left such an rsync
    unfinished: bool = False
    #: mirrored paths that were changed on the cluster: checked again in each pass
    conflicts: frozenset[str] = frozenset()
    #: the big transfer under way
    progress: Progress | None = None

    @property
    def pulled(self) -> PulledFiles:
        """The paths that `tk pull` fetches or has fetched: the job may go on writing them there.

        And edits made there of files that are deleted here, which may come back."""
        return self.manifest.pulled

    def ours(self, path: str, found: RemoteStat) -> bool:
        """Return True if tk wrote the remote file: it may be replaced without asking."""
        if path in self.in_flight:
            return True
        row = self.manifest.rows.get(path)
        return row is not None and path not in self.pulled and matches_sent(row, found)

    def owe(self, agent: FileAgent | None) -> None:
        """Note that a batch to this agent has no answer."""
        self.is_owed, self.owed_by = True, agent

    def settle(self) -> None:
        """Note that no such batch will be published any more."""
        self.is_owed, self.owed_by = False, None

    def keep_edit(self, path: str) -> None:
        """Note that a deleted file stays, edited, on the cluster: no later one may replace it."""
        self.pulled.add([path])

    def gone(self, paths: Iterable[str]) -> None:
        """Remove deleted paths from the record (blocking).

        A path at which a broken transfer may still write stays on record for that time, and is
        checked again.
        """
        rows, own, kept = self.manifest.rows, self.own_digests(), {}
        if time.monotonic() < self.straggling_until:
            for path in paths:
                row, digests = rows.get(path), {*own.get(path, ())}
                if row is None:
                    continue
                # A directory of tk's can hold the file of such an rsync, which goes with that.
                if digests or row.made or (row.digest and not row.sent):
                    tried = " ".join(sorted(digests - {row.digest}))
                    kept[path] = row._replace(sent=False, tried=tried)
        self.manifest.put(kept)
        dropped = [path for path in paths if path not in kept]
        self.manifest.drop(dropped)
        for path in dropped:
            self.arrived(path)

    def attempt(self, path: str, intent: ManifestEntry, digest: str) -> ManifestEntry:
        """Note that this content will be sent next.

        Returns `intent`, the new record of the path, with the digests that the file there may
        have after a kill -9 in the middle.
        """
        if not digest:
            return intent  # a directory
        before, self.unanswered[path] = self.unanswered.get(path), digest
        if before not in (None, digest):
            self.late.setdefault(path, {})[str(before)] = time.monotonic() + _LATE_S
        tried, row = {*self.tried.get(path, ())}, self.manifest.rows.get(path)
        if row is not None and row.digest and not (row.sent and path in self.pulled):
            tried.add(row.digest)
        if len(tried) < _TRIED_LIMIT:
            tried.add(digest)
        # A first copy has all files here at once: a tuple takes a third of a set's memory.
        self.tried[path] = tuple(tried)
        return intent._replace(tried=" ".join(sorted(tried - {intent.digest})))

    def other_is_there(self, path: str, digest: str) -> ManifestEntry:
        """Note that the file there has this content, which was not the one to be sent.

        Returns its new record, which names no older digest: one could make way for this one.
        """
        row = self.manifest.rows[path]
        self.tried[path], self.unanswered[path] = {row.digest, digest}, digest
        return row._replace(tried=digest if digest != row.digest else "")

    def arrived(self, path: str) -> None:
        """Note that the content sent to this path has arrived."""
        self.in_flight.discard(path)
        for waiting in (self.tried, self.unanswered):
            waiting.pop(path, None)
            if not waiting:
                waiting.clear()  # of its table, too, as large as a first copy made it

    def own_digests(self) -> Mapping[str, Collection[str]]:
        """Return by path the digests of tk's own content that may be there besides the last one."""
        now = time.monotonic()
        for path, untils in list(self.late.items()):
            self.late[path] = {text: until for text, until in untils.items() if until > now}
            if not self.late[path]:
                del self.late[path]
        if not self.late:
            return self.tried
        paths = self.tried.keys() | self.late.keys()
        return {path: {*self.tried.get(path, ()), *self.late.get(path, ())} for path in paths}
