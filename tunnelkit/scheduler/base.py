"""What every scheduler adapter provides. Adapters are pure: no I/O, no clock.

The caller runs `Command`s on the login host and hands the `Completed` back to
the matching `parse_*`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tunnelkit.model import Completed, JobStatus, ResourceRequest


@dataclass(frozen=True, slots=True)
class Command:
    """One command for the login host: exact words, and what it reads on stdin."""

    argv: tuple[str, ...]
    stdin: bytes = b""


class Scheduler(Protocol):
    """One batch system's dialect."""

    @property
    def name(self) -> str: ...

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        """Submit a holder: a batch job whose `body` (sh, no shebang) is the agent. `log_dir`
        exists on the cluster and takes the job's log."""
        ...

    def parse_submit(self, done: Completed) -> str:
        """The job id. Raises SchedulerError with the scheduler's own words and a hint."""
        ...

    def query(self, job_ids: Sequence[str]) -> Command:
        """Ask for many jobs with one command."""
        ...

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Status by job id. A job that the scheduler no longer knows is UNKNOWN, never
        ENDED; a scheduler that can't be asked raises SchedulerError (transient)."""
        ...

    def find(self, job_name: str) -> Command:
        """Ask for this user's unfinished jobs of that exact name."""
        ...

    def parse_find(self, done: Completed) -> list[JobStatus]: ...

    def estimate(self, job_id: str) -> Command | None:
        """Ask when a pending job may start; None if this scheduler can't tell."""
        ...

    def parse_estimate(self, done: Completed) -> str | None: ...

    def cancel(self, job_id: str) -> Command: ...

    def enter(self, job_id: str, node: str, argv: Sequence[str]) -> list[str]:
        """argv that, run on the login host, runs `argv` inside the job on `node` with stdin
        and stdout attached: the way in where nodes refuse ssh."""
        ...
