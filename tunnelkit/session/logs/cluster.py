"""The cluster as `tk logs` needs it: by the session's link, or by one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tunnelkit.config.schema import Settings
from tunnelkit.link.base import ByteStream, Prompter
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Command, Scheduler
from tunnelkit.scheduler.inspector import JobInspector
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.why.sources import no_inspector, own_cluster

#: Between two questions whether the link is back.
_AGAIN_S = 1.0
#: One command that asks for a job.
_LIMIT_S = 75.0


@dataclass(frozen=True)
class LogCluster:
    """name: the login host's. run, open_stream: a command on the login host. is_alive: of its link.
    reopen: called after a cut; returns once the link may be up again, raises as `Link.open`."""

    name: str
    scheduler: Scheduler
    inspector: JobInspector
    run: Callable[[Command], Awaitable[Completed]]
    open_stream: Callable[[Sequence[str]], Awaitable[ByteStream]]
    is_alive: Callable[[], Awaitable[bool]]
    reopen: Callable[[], Awaitable[None]]


@asynccontextmanager
async def own_log_cluster(
    settings: Settings, prompter: Prompter | None
) -> AsyncIterator[LogCluster]:
    """Connect without a session. Raises ConnectionFailed, HostKeyError, SchedulerError."""
    async with own_cluster(settings, prompter) as found:
        link = found.link

        async def run(command: Command) -> Completed:
            return await link.run(command.argv, stdin=command.stdin, timeout_s=_LIMIT_S)

        async def open_stream(argv: Sequence[str]) -> ByteStream:
            return await link.open_stream(argv)

        async def reopen() -> None:
            if not await link.is_alive():
                await link.open()

        asked = (found.scheduler, found.inspector)
        yield LogCluster(link.name, *asked, run, open_stream, link.is_alive, reopen)


def session_log_cluster(allocation: AllocationManager) -> LogCluster:
    """Return a session's cluster. Raises SchedulerError if it has no scheduler."""
    job, link, wait_link = allocation.job, allocation.setup.link, allocation.setup.wait_link
    inspector = None if job is None else job.scheduler.inspector()
    if job is None or inspector is None:
        raise no_inspector(link.name)

    async def open_stream(argv: Sequence[str]) -> ByteStream:
        await wait_link()
        return await link.open_stream(argv)

    async def reopen() -> None:
        while True:
            await wait_link()
            if await link.is_alive():
                return
            await asyncio.sleep(_AGAIN_S)

    asked = (job.scheduler, inspector)
    return LogCluster(link.name, *asked, allocation.run, open_stream, link.is_alive, reopen)
