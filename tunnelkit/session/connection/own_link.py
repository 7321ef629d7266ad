"""A connection of one command, for commands that do without a session."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.config.schema import Settings
from tunnelkit.link.base import Link, LinkSetup, Prompter
from tunnelkit.model import Completed
from tunnelkit.scheduler.base import Scheduler
from tunnelkit.session.backends.backend import Question
from tunnelkit.session.backends.registry import choose
from tunnelkit.session.runtime.paths import patient_logins

#: ssh is started by then: the work does not hold it up.
_MEANWHILE_S = 0.03


@dataclass(frozen=True)
class OwnLink:
    """An open link, and the scheduler of its host; None if it has none.

    answer: to the question that came with the connection; None if it was not asked."""

    link: Link
    scheduler: Scheduler | None
    answer: Completed | None = None


@asynccontextmanager
async def own_link(
    settings: Settings,
    prompter: Prompter | None,
    question: Question | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> AsyncIterator[OwnLink]:
    """Connect without a session. question: all that the command wants to know; it is asked together
    with the detection of the scheduler, where the backend can. meanwhile: called in a thread while
    the connection is made. Raises ConnectionFailed, HostKeyError, SchedulerError."""
    backend = choose(settings)
    with tempfile.TemporaryDirectory(prefix="tk-") as directory:
        setup = LinkSetup(
            Path(directory),
            prompter,
            patient_logins=patient_logins(),
            once=question is not None,
        )
        link = backend.make_link(settings, setup)
        try:
            with _in_thread(meanwhile):
                await link.open()
            if question is not None and backend.ask_first is not None:
                yield OwnLink(link, *await backend.ask_first(link, settings, question))
            else:
                yield OwnLink(link, await backend.find_scheduler(link, settings))
        finally:
            await link.close()


@contextmanager
def _in_thread(work: Callable[[], None] | None) -> Iterator[None]:
    """Call `work` beside the block; not at all if the block was over first."""
    if work is None:
        yield
        return
    thread = threading.Timer(_MEANWHILE_S, work)
    thread.start()
    try:
        yield
    finally:
        thread.cancel()
        thread.join()
