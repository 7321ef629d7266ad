"""The interface for questions about a job: why it waits, how it ended. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tunnelkit.diagnosis.evidence.cluster import ClusterView
from tunnelkit.diagnosis.evidence.end import EndView
from tunnelkit.diagnosis.evidence.job import JobView
from tunnelkit.diagnosis.evidence.storage import NO_STORAGE, StorageView
from tunnelkit.model import Completed


@dataclass(frozen=True, slots=True)
class LogHint:
    """The paths of an ended job's log on the login host, where the scheduler has forgotten them.

    given: the user has named the file: then it counts, whatever the scheduler says."""

    stdout: str = ""
    stderr: str = ""
    given: bool = False

    @property
    def words(self) -> tuple[str, str, str]:
        """The three as arguments of a script; a path never begins with a dash."""
        return _word(self.stdout), _word(self.stderr), "given" if self.given else ""


NO_HINT = LogHint()


def _word(path: str) -> str:
    return f"./{path}" if path.startswith("-") else path


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that one command has brought about a job.

    asked_s: Unix time, by the login host's clock. job: None if the scheduler does not know it
    (any more). cluster: of a job that waits. end: of a job that has ended, or is not known.
    storage: of a job that runs, if it was asked for. missing: what did not answer, and why.
    """

    asked_s: float
    job: JobView | None
    cluster: ClusterView | None = None
    end: EndView | None = None
    missing: tuple[str, ...] = ()
    storage: StorageView = NO_STORAGE


class JobInspector(Protocol):
    """Builds the questions about one job, and parses the answers."""

    def newest(self) -> list[str]:
        """Return a command for the login host that lists this user's jobs.

        Those that ended a moment ago are among them."""
        ...

    def parse_newest(self, done: Completed) -> str | None:
        """Return the id of the newest job: one that runs or waits, else the one that ended last.

        None if there is none. Raises SchedulerError if the scheduler did not answer."""
        ...

    def usual_log(self, job_id: str) -> str:
        """Return the name that the scheduler gives a log by default."""
        ...

    def inspect(
        self, job_id: str, mark: str, box_dir: str = "", log: LogHint = NO_HINT
    ) -> list[str]:
        """Return one command that asks for the job and, by its state, for what matters about it.

        It is for the login host, with at most six commands of the scheduler. mark: see
        `sections`. box_dir: `[cluster] directory`, for the black boxes of an ended job and the
        file system of a running one's log; "" if they do not matter. log: where the log of an
        ended job is. Raises UsageError if `job_id` is none of this scheduler's."""
        ...

    def parse(self, done: Completed, job_id: str, mark: str) -> Inspection:
        """Return what was found. Raises SchedulerError (transient) if nothing answered."""
        ...

    def shorten(self, address: str, minutes: int) -> list[str]:
        """Return the command for the login host that sets a waiting job's time limit.

        address: `JobView.address`. Raises UsageError if it is none of this scheduler's."""
        ...

    def parse_shorten(self, done: Completed, job_id: str) -> None:
        """Raise SchedulerError unless the limit was set."""
        ...
