"""What every pass over one remote root works on, and what it leaves for the next."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tunnelkit.mirror.api import DELETE_LIMIT_FILES, FileAgent
from tunnelkit.mirror.progress import NAMED, Progress
from tunnelkit.mirror.record.manifest import Manifest, ManifestEntry
from tunnelkit.mirror.remote.edits import matches_sent
from tunnelkit.mirror.remote.owner import OwnerRecord
from tunnelkit.mirror.remote.scripts import RemoteStat
from tunnelkit.mirror.tree.name_collisions import EXACT, CaseFolding
from tunnelkit.remote_script import RemoteHost

_TRIED_LIMIT = 8
#: What was sent over a link that then broke may still be on its way, in a socket's buffer or with
#: an rsync there that has not heard of it.
_LATE_S = 600.0


@dataclass(slots=True)
class PassResult:
    """What one pass did. changing: paths that changed while they were read or sent.
    failed: paths that can't be read or written, and why. conflicts: paths that were changed
    on the cluster and are left alone."""

    sent: int = 0
    sent_bytes: int = 0
    deleted: int = 0
    kept: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    replaced_dir: str | None = None
    changing: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)
    #: the whole tree was looked at, which took so long
    scanned: bool = False
    scan_s: float = 0.0
    #: some of the files that were sent or deleted, for people
    names: list[str] = field(default_factory=list)

    def name(self, path: str) -> None:
        """Note a file that was sent or deleted."""
        if len(self.names) < NAMED:
            self.names.append(path)


@dataclass(slots=True)
class SyncContext:
    """One root here and one there. remote_root: absolute, symlinks resolved. fresh: tk has
    just made it, nothing can be in it. folding: which names the file system there holds for
    the same. delete_limit: how many files may be deleted at once. quick: the local root is on a
    disk of this machine, so that a file which was just written is in its memory."""

    remote: RemoteHost
    local_root: str
    remote_root: str
    manifest: Manifest
    claim: OwnerRecord | None = None
    fresh: bool = False
    folding: CaseFolding = EXACT
    delete_limit: int = DELETE_LIMIT_FILES
    quick: bool = False
    #: sent by rsync, but not yet known to have arrived as they are here: what is there is ours
    in_flight: set[str] = field(default_factory=set)
    #: the digests that were sent without an answer, by path: to be found there, or not; no word
    #: on whose it is if something else is there
    tried: dict[str, set[str]] = field(default_factory=dict)
    #: by path, the digest of the last that was sent and not answered
    unanswered: dict[str, str] = field(default_factory=dict)
    #: by path, digests that may yet come there after what was sent since, and until when
    late: dict[str, dict[str, float]] = field(default_factory=dict)
    #: something was sent over a live channel that broke, or to an agent of an earlier turn, and has
    #: no answer: it may be published yet. owed_by: by this agent, if it is known
    is_owed: bool = False
    owed_by: FileAgent | None = None
    #: (monotonic) until when an rsync whose link broke may go on there
    straggling_until: float = 0.0
    #: mirrored paths that were changed on the cluster: looked at again in each pass
    conflicts: frozenset[str] = frozenset()
    #: the big transfer that is under way
    progress: Progress | None = None

    def ours(self, path: str, found: RemoteStat) -> bool:
        """Whether what is there is what tk put there, and may go without a word."""
        if path in self.in_flight:
            return True
        row = self.manifest.rows.get(path)
        return row is not None and matches_sent(row, found)

    def owe(self, agent: FileAgent | None) -> None:
        """Note that what was sent to this agent has no answer."""
        self.is_owed, self.owed_by = True, agent

    def settle(self) -> None:
        """Nothing of that will be published any more."""
        self.is_owed, self.owed_by = False, None

    def gone(self, paths: Iterable[str]) -> None:
        """Forget what was deleted there (blocking). A path to which a broken transfer may bring
        something yet stays on record for that time, and is looked at again."""
        rows, own, kept = self.manifest.rows, self.own_digests(), {}
        if time.monotonic() < self.straggling_until:
            for path in paths:
                row, digests = rows.get(path), own.get(path, ())
                if row is not None and digests:
                    tried = " ".join(sorted({*digests} - {row.digest}))
                    kept[path] = row._replace(sent=False, tried=tried)
        self.manifest.put(kept)
        dropped = [path for path in paths if path not in kept]
        self.manifest.drop(dropped)
        for path in dropped:
            self.arrived(path)

    def attempt(self, path: str, intent: ManifestEntry, digest: str) -> ManifestEntry:
        """Note that this content is about to be sent. Returns `intent`, which is to replace what
        is on record of the path, with what may be there after a kill -9 in the middle."""
        if not digest:
            return intent  # a directory
        before, self.unanswered[path] = self.unanswered.get(path), digest
        if before not in (None, digest):
            self.late.setdefault(path, {})[str(before)] = time.monotonic() + _LATE_S
        tried, row = self.tried.setdefault(path, set()), self.manifest.rows.get(path)
        if row is not None and row.digest:
            tried.add(row.digest)
        if len(tried) < _TRIED_LIMIT:
            tried.add(digest)
        return intent._replace(tried=" ".join(sorted(tried - {intent.digest})))

    def arrived(self, path: str) -> None:
        """What was sent to this path is there."""
        self.in_flight.discard(path)
        self.tried.pop(path, None)
        self.unanswered.pop(path, None)

    def own_digests(self) -> Mapping[str, Collection[str]]:
        """By path, what may be there though it is not what was sent last, and is tk's."""
        now = time.monotonic()
        for path, untils in list(self.late.items()):
            self.late[path] = {text: until for text, until in untils.items() if until > now}
            if not self.late[path]:
                del self.late[path]
        if not self.late:
            return self.tried
        paths = self.tried.keys() | self.late.keys()
        return {path: {*self.tried.get(path, ()), *self.late.get(path, ())} for path in paths}
