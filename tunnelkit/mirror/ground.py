"""What every pass over one remote root works on, and what it leaves for the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunnelkit.mirror.base import Remote
from tunnelkit.mirror.collisions import EXACT, Folding
from tunnelkit.mirror.conflicts import as_sent
from tunnelkit.mirror.limits import DELETE_LIMIT_FILES
from tunnelkit.mirror.manifest import Manifest, Row
from tunnelkit.mirror.owner import Claim
from tunnelkit.mirror.progress import Progress
from tunnelkit.mirror.shell import RemoteStat

_TRIED_LIMIT = 8


@dataclass(slots=True)
class Ground:
    """One root here and one there. remote_root: absolute, symlinks resolved. fresh: tk has
    just made it, nothing can be in it. folding: which names the file system there holds for
    the same. delete_limit: how many files may be deleted at once. quick: the local root is on a
    disk of this machine, so that a file which was just written is in its memory."""

    remote: Remote
    local_root: str
    remote_root: str
    manifest: Manifest
    claim: Claim | None = None
    fresh: bool = False
    folding: Folding = EXACT
    delete_limit: int = DELETE_LIMIT_FILES
    quick: bool = False
    #: sent by rsync, but not yet known to have arrived as they are here: what is there is ours
    in_flight: set[str] = field(default_factory=set)
    #: the digests that were sent without an answer, by path: to be found there, or not; no word
    #: on whose it is if something else is there
    tried: dict[str, set[str]] = field(default_factory=dict)
    #: mirrored paths that were changed on the cluster: looked at again in each pass
    conflicts: frozenset[str] = frozenset()
    #: the big transfer that is under way
    progress: Progress | None = None

    def ours(self, path: str, found: RemoteStat) -> bool:
        """Whether what is there is what tk put there, and may go without a word."""
        if path in self.in_flight:
            return True
        row = self.manifest.rows.get(path)
        return row is not None and as_sent(row, found)

    def attempt(self, path: str, intent: Row, digest: str) -> Row:
        """Note that this content is about to be sent. Returns `intent`, which is to replace what
        is on record of the path, with what may be there after a kill -9 in the middle."""
        if not digest:
            return intent  # a directory
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
