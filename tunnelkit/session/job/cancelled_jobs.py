"""List of the jobs that tk has cancelled, until they are gone.

A scheduler may still report such a job as running (Torque, until the node has reported its end),
or as one that may run again (Slurm: COMPLETING of a job with --requeue).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path


class CancelledJobs:
    """Job ids in a file that outlives the session: a later session must not reuse these jobs."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def ids(self) -> list[str]:
        """Return the recorded job ids."""
        try:
            return self._file.read_text().split()
        except OSError:
            return []

    def add(self, job_id: str) -> None:
        """Record a job as cancelled."""
        self._write([*self.ids(), job_id])

    def forget(self, job_id: str) -> None:
        """Remove one job."""
        self.keep_only(one for one in self.ids() if one != job_id)

    def keep_only(self, job_ids: Iterable[str]) -> None:
        """Remove all other jobs: they are gone."""
        wanted = set(job_ids)
        known = self.ids()
        if not wanted.issuperset(known):
            self._write([one for one in known if one in wanted])

    def _write(self, job_ids: list[str]) -> None:
        # A full disk must not prevent the cancellation.
        with contextlib.suppress(OSError):
            if job_ids:
                temporary = self._file.with_suffix(".new")
                temporary.write_text("\n".join(dict.fromkeys(job_ids)) + "\n")
                temporary.replace(self._file)
            else:
                self._file.unlink(missing_ok=True)
