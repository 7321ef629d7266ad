"""The places that `tk why` asks: the login host, by the session's link or by one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tunnelkit.config.schema import Settings
from tunnelkit.diagnosis.evidence.stacks import StackView
from tunnelkit.errors import SchedulerError
from tunnelkit.link.base import Link, Prompter
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.inspector import JobInspector
from tunnelkit.session.agent.find_python import DEFAULT
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.connection.own_link import own_link
from tunnelkit.session.why.running import Enter, by_scheduler

#: One command: six of the scheduler, 10 s at most each.
_LIMIT_S = 75.0


@dataclass(frozen=True)
class WhySources:
    """run: runs an argv on the login host. cluster: the login host's name, for messages.

    directory: `[cluster] directory`, which has the black boxes; "" if they do not matter.
    enter: the way into running jobs; None if there is none. python: `[cluster] python`.
    debugged: asks the session's debuggees where a job's processes are."""

    run: Callable[[Sequence[str]], Awaitable[Completed]]
    inspector: JobInspector
    cluster: str
    directory: str
    enter: Enter | None = None
    python: str = DEFAULT
    debugged: Callable[[str], Awaitable[tuple[StackView, ...]]] | None = None


@dataclass(frozen=True)
class OwnCluster:
    """A cluster by a connection of one command."""

    link: Link
    scheduler: Scheduler
    inspector: JobInspector


@asynccontextmanager
async def own_cluster(settings: Settings, prompter: Prompter | None) -> AsyncIterator[OwnCluster]:
    """Connect without a session. Raises ConnectionFailed, HostKeyError, SchedulerError."""
    async with own_link(settings, prompter) as own:
        inspector = None if own.scheduler is None else own.scheduler.inspector()
        if own.scheduler is None or inspector is None:
            raise no_inspector(own.link.name)
        yield OwnCluster(own.link, own.scheduler, inspector)


@asynccontextmanager
async def own_sources(settings: Settings, prompter: Prompter | None) -> AsyncIterator[WhySources]:
    """Connect without a session. Raises as `own_cluster`."""
    async with own_cluster(settings, prompter) as found:
        yield sources_by(found, settings)


def sources_by(found: OwnCluster, settings: Settings) -> WhySources:
    """Return a connection of one command as a source."""

    async def run(argv: Sequence[str]) -> Completed:
        return await found.link.run(argv, timeout_s=_LIMIT_S)

    return WhySources(
        run,
        found.inspector,
        found.link.name,
        settings.cluster.directory,
        enter=by_scheduler(found.scheduler, found.link),
        python=settings.cluster.python,
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
    return WhySources(run, inspector, setup.link.name, settings.directory, python=settings.python)


def no_inspector(cluster: str) -> SchedulerError:
    """Return the error of a cluster whose jobs can't be asked about."""
    return SchedulerError(
        f"{cluster} has no scheduler whose jobs `tk why` can explain",
        hint="`tk why` knows Slurm and PBS; `tk doctor` shows what was found",
    )
