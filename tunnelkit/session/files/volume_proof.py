"""The proof that a pod sees what another pod's mirror has written to a volume of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.api import DigestCheck, name_paths
from tunnelkit.mirror.proof import not_read_back
from tunnelkit.mirror.record.manifest import ManifestEntry
from tunnelkit.mirror.tree.scanner import FILE, Entry

#: Pauses while the pod's view of the volume lags, growing between these.
_ASK_AGAIN_S = (0.1, 2.0)
_CALL_FILES = 2000

#: A file as it was read back: its digest, its stat where it was written, and the laptop's. The
#: last two tell apart the same content, written twice.
_Version = tuple[str, str, Entry]


class VolumeProof:
    """Reads files back in one pod that another pod's mirror has written.

    sent: returns what that mirror has sent. check: reads in this pod.
    """

    def __init__(self, sent: Callable[[], Mapping[str, ManifestEntry]], check: DigestCheck) -> None:
        self._sent = sent
        self._check = check
        self._proven: dict[str, _Version] = {}

    async def prove(self, deadline: float, timeout_s: float) -> int:
        """Wait until this pod sees all files as they were sent; return how many it had not seen.

        A file that is sent again meanwhile may be of the newer version.

        deadline: of `time.monotonic`. timeout_s: the caller's limit, for messages. Raises
        MirrorError and TimeoutExpired, which name the files, and what `check` raises.
        """
        wanted = set(self._unseen())
        self._proven = {path: self._proven[path] for path in self._proven.keys() & self._sent()}
        count, pause_s = len(wanted), _ASK_AGAIN_S[0]
        differing: frozenset[str] = frozenset()
        while True:
            # With nothing to read, a sign of life of the pod is the proof.
            left = {path: one for path, one in self._unseen().items() if path in wanted}
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    differing = await self._read(left)
            except TimeoutError:
                raise not_read_back(left, timeout_s) from None
            wanted &= differing
            if not wanted:
                return count
            if time.monotonic() + pause_s > deadline:
                raise _differs(differing)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _ASK_AGAIN_S[1])

    async def _read(self, versions: Mapping[str, _Version]) -> frozenset[str]:
        """Read these files; return those that differ, and note the others."""
        paths, found = list(versions), set[str]()
        for begin in range(0, max(1, len(paths)), _CALL_FILES):
            part = paths[begin : begin + _CALL_FILES]
            differing = await self._check({path: versions[path][0] for path in part})
            found.update(differing)
            # What the pod did not answer for a path that it was not asked is nobody's business.
            self._proven |= {path: versions[path] for path in part if path not in found}
        return frozenset(found & versions.keys())

    def _unseen(self) -> dict[str, _Version]:
        found = {}
        for path, row in self._sent().items():
            version = (row.digest, row.stamp, row.entry)
            is_file = row.sent and row.entry.kind == FILE
            if is_file and self._proven.get(path) != version:
                found[path] = version
        return found


def _differs(paths: frozenset[str]) -> MirrorError:
    return MirrorError(
        "the pod sees other content on the shared volume than the laptop has",
        cause=f"{len(paths)} differ: {name_paths(sorted(paths))}",
        hint="the volume lags, or something there changes them; see `tk status`",
        transient=True,
    )
