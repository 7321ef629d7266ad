"""The jobs that tk has told the scheduler to end, until they are gone.

A scheduler may go on calling such a job running (Torque, until word of its end has come from
the node), or one that may come back (Slurm's COMPLETING of a job with --requeue).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path


class CancelledJobs:
    """Job ids in one file, which outlives the session: a second one must not take them over."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def ids(self) -> list[str]:
        try:
            return self._file.read_text().split()
        except OSError:
            return []

    def add(self, job_id: str) -> None:
        self._write([*self.ids(), job_id])

    def forget(self, job_id: str) -> None:
        self.keep_only(one for one in self.ids() if one != job_id)

    def keep_only(self, job_ids: Iterable[str]) -> None:
        """Forget all others: they are gone."""
        wanted = set(job_ids)
        known = self.ids()
        if not wanted.issuperset(known):
            self._write([one for one in known if one in wanted])

    def _write(self, job_ids: list[str]) -> None:
        # A full disk must not keep a job from being ended.
        with contextlib.suppress(OSError):
            if job_ids:
                temporary = self._file.with_suffix(".new")
                temporary.write_text("\n".join(dict.fromkeys(job_ids)) + "\n")
                temporary.replace(self._file)
            else:
                self._file.unlink(missing_ok=True)
