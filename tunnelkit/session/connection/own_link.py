"""A connection of one command, for commands that do without a session."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.config.schema import Settings
from tunnelkit.link.base import Link, LinkSetup, Prompter
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.session.backends.registry import choose


@dataclass(frozen=True)
class OwnLink:
    """An open link, and the scheduler of its host; None if it has none."""

    link: Link
    scheduler: Scheduler | None


@asynccontextmanager
async def own_link(settings: Settings, prompter: Prompter | None) -> AsyncIterator[OwnLink]:
    """Connect without a session. Raises ConnectionFailed, HostKeyError, SchedulerError."""
    backend = choose(settings)
    with tempfile.TemporaryDirectory(prefix="tk-") as directory:
        link = backend.make_link(settings, LinkSetup(Path(directory), prompter))
        try:
            await link.open()
            yield OwnLink(link, await backend.find_scheduler(link, settings))
        finally:
            await link.close()
