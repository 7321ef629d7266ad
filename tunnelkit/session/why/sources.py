"""The places that `tk why` asks: the login host, by the session's link or by one of its own."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tunnelkit.config.schema import Settings
from tunnelkit.errors import SchedulerError
from tunnelkit.link.base import Link, Prompter
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.session.backends.backend import Question
from tunnelkit.session.connection.own_link import own_link

if TYPE_CHECKING:  # a command without a session connects before it imports these
    from tunnelkit.diagnosis.evidence.stacks import StackView
    from tunnelkit.scheduler.inspector import JobInspector, LogHint
    from tunnelkit.session.allocation.manager import AllocationManager
    from tunnelkit.session.why.running import Enter

#: One command: six of the scheduler, 10 s at most each.
_LIMIT_S = 75.0


@dataclass(frozen=True)
class FirstAsked:
    """The first question of a diagnosis, sent with the connection: about `job_id`, or (None) for
    the newest job. mark: of the answer's sections. done: the answer; None if it was not asked."""

    job_id: str | None
    mark: str
    done: Completed | None = None


@dataclass(frozen=True)
class WhySources:
    """run: runs an argv on the login host. cluster: the login host's name, for messages.

    directory: `[cluster] directory`, which has the black boxes; "" if they do not matter.
    enter: the way into running jobs; None if there is none. python: `[cluster] python`.
    debugged: asks the session's debuggees where a job's processes are. first: what was asked
    already."""

    run: Callable[[Sequence[str]], Awaitable[Completed]]
    inspector: JobInspector
    cluster: str
    directory: str
    python: str
    enter: Enter | None = None
    debugged: Callable[[str], Awaitable[tuple[StackView, ...]]] | None = None
    first: FirstAsked | None = None


@dataclass(frozen=True)
class OwnCluster:
    """A cluster by a connection of one command."""

    link: Link
    scheduler: Scheduler
    inspector: JobInspector
    answer: Completed | None = None


@asynccontextmanager
async def own_cluster(
    settings: Settings,
    prompter: Prompter | None,
    question: Question | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> AsyncIterator[OwnCluster]:
    """Connect without a session. question, meanwhile: see `own_link`. Raises ConnectionFailed,
    HostKeyError, SchedulerError."""
    async with own_link(settings, prompter, question, meanwhile) as own:
        inspector = None if own.scheduler is None else own.scheduler.inspector()
        if own.scheduler is None or inspector is None:
            raise no_inspector(own.link.name)
        yield OwnCluster(own.link, own.scheduler, inspector, own.answer)


@asynccontextmanager
async def own_sources(settings: Settings, prompter: Prompter | None) -> AsyncIterator[WhySources]:
    """Connect without a session. Raises as `own_cluster`."""
    async with own_cluster(settings, prompter) as found:
        yield sources_by(found, settings)


@asynccontextmanager
async def asking_sources(
    settings: Settings,
    prompter: Prompter | None,
    job_id: str | None,
    log: str = "",
    meanwhile: Callable[[], None] | None = None,
) -> AsyncIterator[WhySources]:
    """Connect without a session, and ask in the same command what one `diagnose` with this job and
    log will ask first. meanwhile: see `own_link`. Raises as `own_cluster`."""
    first = FirstAsked(job_id, f"tk-{secrets.token_hex(8)}")

    def question(inspector: JobInspector, cluster: str) -> Sequence[str]:
        if job_id is None:
            return inspector.newest()
        hint = hint_for(cluster, job_id, log)
        return inspector.inspect(job_id, first.mark, settings.cluster.directory, hint)

    async with own_cluster(settings, prompter, question, meanwhile) as found:
        yield replace(sources_by(found, settings), first=replace(first, done=found.answer))


def hint_for(cluster: str, job_id: str, log: str) -> LogHint:
    """Return where an ended job's log may be: as the user says, or as tk has seen it."""
    from tunnelkit.scheduler.inspector import NO_HINT, LogHint
    from tunnelkit.session.job.log_paths import recall_log_paths

    if log:
        return LogHint(log, given=True)
    known = recall_log_paths(cluster, job_id)
    return NO_HINT if known is None else LogHint(known.stdout, known.stderr)


def sources_by(found: OwnCluster, settings: Settings) -> WhySources:
    """Return a connection of one command as a source."""
    from tunnelkit.session.why.running import by_scheduler

    async def run(argv: Sequence[str]) -> Completed:
        return await found.link.run(argv, timeout_s=_LIMIT_S)

    return WhySources(
        run,
        found.inspector,
        found.link.name,
        settings.cluster.directory,
        settings.cluster.python,
        enter=by_scheduler(found.scheduler, found.link),
    )


def cluster_sources(cluster: AllocationManager) -> WhySources | None:
    """Return a session's login host as a source; None without a scheduler that can be asked."""
    inspector = None if cluster.job is None else cluster.job.scheduler.inspector()
    if inspector is None:
        return None

    async def run(argv: Sequence[str]) -> Completed:
        return await cluster.run(Command(tuple(argv)))

    setup = cluster.setup
    settings = setup.settings.cluster
    return WhySources(run, inspector, setup.link.name, settings.directory, settings.python)


def no_inspector(cluster: str) -> SchedulerError:
    """Return the error of a cluster whose jobs can't be asked about."""
    return SchedulerError(
        f"{cluster} has no scheduler whose jobs tk can look into",
        hint="that is for Slurm and PBS; of pods, `tk why` alone; `tk doctor` shows what was found",
    )
