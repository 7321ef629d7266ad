"""`scheduler = none`: plain hosts without a batch system.

There is nothing to submit to and nobody to ask, so the session starts the
agent over ssh on the node that the person named, and treats this adapter
specially: it checks `isinstance(scheduler, NoScheduler)` (or `name == "none"`)
before it submits. A call that makes no sense here raises SchedulerError rather
than pretend; `enter` is the plain command, as the way in is the link's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tunnelkit.errors import SchedulerError
from tunnelkit.model import Completed, JobState, JobStatus, ResourceRequest
from tunnelkit.scheduler.base import Command, Verdict


class NoScheduler:
    """The absent batch system: no jobs, no queue, no limits."""

    @property
    def name(self) -> str:
        return "none"

    def submit(
        self, request: ResourceRequest, *, job_name: str, body: str, log_dir: str
    ) -> Command:
        _no_jobs()

    def parse_submit(self, done: Completed) -> str:
        _no_jobs()

    def query(self, job_ids: Sequence[str]) -> Command:
        _no_jobs()

    def parse_query(self, done: Completed, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        _no_jobs()

    def verdict(self, status: JobStatus) -> Verdict:
        _no_jobs()

    def find(self, job_name: str) -> Command:
        """A command that finds nothing: no job of that name can be left from before."""
        return Command(("true",))

    def parse_find(self, done: Completed, job_name: str) -> list[JobStatus]:
        return []

    def estimate(self, job_id: str) -> Command | None:
        return None

    def parse_estimate(self, done: Completed) -> str | None:
        return None

    def history(self, job_id: str) -> Command | None:
        return None

    def parse_history(self, done: Completed) -> JobState:
        return JobState.UNKNOWN

    def cancel(self, job_id: str) -> Command:
        _no_jobs()

    def parse_cancel(self, done: Completed) -> None:
        _no_jobs()

    def enter(
        self, job_id: str, node: str, argv: Sequence[str], *, cpus: int | None = None
    ) -> list[str]:
        """`argv` itself, to be run on the node over the link."""
        return list(argv)


def _no_jobs() -> NoReturn:
    raise SchedulerError(
        "there is no scheduler here to give a job to",
        cause='scheduler = "none"',
        hint='set scheduler = "auto" under [cluster] if the cluster has one',
    )
