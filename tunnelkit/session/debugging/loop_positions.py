"""The records of loops that this computer's log has, so that a later session reads the others."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path


class LoopPositions:
    """A file in the session's state directory: the number of the next record of each loop's part.

    It is written with each record, in place and without fsync: a killed session leaves it whole. A
    computer without power may lose the last numbers; then the log gets some records twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[int, int], int] | None = None
        self._written = 0

    def begin(self, loop_id: int) -> None:
        """Forget an earlier loop of this id: each agent counts its loops from 1."""
        known = self._read()
        for key in [one for one in known if one[0] == loop_id]:
            del known[key]
        self._write(known)

    def note(self, loop_id: int, part: int, number: int) -> None:
        """Note a record. A disk that is full costs only what a later session reads again."""
        known, key = self._read(), (loop_id, part)
        # The session's own records are all number 0.
        if number >= known.get(key, 0):
            known[key] = number + 1
            self._write(known)

    def next_records(self, loop_id: int) -> dict[int, int]:
        """Return the number of the next record by part; without those of which it has none."""
        return {part: number for (loop, part), number in self._read().items() if loop == loop_id}

    def _read(self) -> dict[tuple[int, int], int]:
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError, ValueError, TypeError):
                text = self._path.read_bytes()
                self._written = len(text)
                self._known = {(int(loop), int(part)): int(n) for loop, part, n in json.loads(text)}
        return self._known

    def _write(self, known: dict[tuple[int, int], int]) -> None:
        rows = [[loop, part, number] for (loop, part), number in known.items()]
        # In one piece, and never shorter: nothing of an older text remains behind it.
        data = json.dumps(rows).encode().ljust(self._written)
        self._written = len(data)
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, data)
            finally:
                os.close(file)
