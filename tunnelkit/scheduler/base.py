"""What every scheduler adapter provides. Adapters are pure: no I/O, no clock.

The caller runs `Command`s on the login host and hands the `Completed` back to
the matching `parse_*`. All parsers raise only SchedulerError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest


@dataclass(frozen=True, slots=True)
class Command:
    """One command for the login host: exact words, and what it reads on stdin."""

    argv: tuple[str, ...]
    stdin: bytes = b""


class PendingCause(Enum):
    """What a job that does not run yet is waiting for.

    WAIT: resources or its turn. QUOTA: a limit that gives way when other jobs
    end. HELD: a person (the user or an administrator) must act. FIX: it can
    never start as requested, so waiting is pointless.
    """

    WAIT = "wait"
    QUOTA = "quota"
    HELD = "held"
    FIX = "fix"


class Scheduler(Protocol):
    """One batch system's dialect."""

    @property
    def name(self) -> str: ...

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        """Submit a holder: a batch job whose `body` (sh, no shebang) is the agent. `log_dir`
        exists on the cluster and takes the job's log (`~/` is the submit directory, which
        under ssh is the home). Raises UsageError if the request holds a value that can't be."""
        ...

    def parse_submit(self, done: Completed) -> str:
        """The job id. Raises SchedulerError with the scheduler's own words and a hint.

        When it is transient the job may have been accepted all the same: look with `find`
        before submitting again."""
        ...

    def query(self, job_ids: Sequence[str]) -> Command:
        """Ask for many jobs with one command."""
        ...

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Status by job id, one for each of `job_ids`. A job that the scheduler no longer
        knows is UNKNOWN with an empty `native_state`, never ENDED; a scheduler that can't be
        asked raises SchedulerError (transient)."""
        ...

    def verdict(self, status: JobStatus) -> PendingCause:
        """What a PENDING job waits for. FIX: cancel it and tell the person why."""
        ...

    def find(self, job_name: str) -> Command:
        """Ask for this user's unfinished jobs of that exact name."""
        ...

    def parse_find(self, done: Completed, job_name: str) -> list[JobStatus]:
        """This user's PENDING and RUNNING jobs of that exact name, oldest first."""
        ...

    def estimate(self, job_id: str) -> Command | None:
        """Ask when a pending job may start; None if this scheduler can't tell."""
        ...

    def parse_estimate(self, done: Completed) -> str | None:
        """The start time in the scheduler's own words (no zone); None while it has none."""
        ...

    def history(self, job_id: str) -> Command | None:
        """Ask the accounting, which remembers jobs that `query` has forgotten; None if this
        scheduler has none."""
        ...

    def parse_history(self, done: Completed) -> JobState:
        """The job's last known state; UNKNOWN where accounting is off or can't be asked."""
        ...

    def cancel(self, job_id: str) -> Command: ...

    def parse_cancel(self, done: Completed) -> None:
        """Raise SchedulerError unless the job is cancelled or was over already."""
        ...

    def enter(
        self, job_id: str, node: str, argv: Sequence[str], *, cpus: int | None = None
    ) -> list[str] | None:
        """argv that, run on the login host, runs `argv` inside the job on `node` with stdin
        and stdout attached: the way in where nodes refuse ssh. `cpus`: what the request
        said, as some releases forget it. None where the scheduler has no such way."""
        ...
