"""Tasks of a session that run beside its way through the states."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from tunnelkit.mux.tasks import cancel_all

log = logging.getLogger("tunnelkit.session")


class BackgroundTasks:
    """Owner of tasks; the error of one is logged and ends no other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run `work` as a task."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._done)
        self._tasks.add(task)
        return task

    async def cancel(self, *, but: asyncio.Task[None] | None = None) -> None:
        """Cancel all tasks but one, and wait until they are over."""
        await cancel_all(*(task for task in self._tasks if task is not but))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            name = getattr(task.get_coro(), "__qualname__", task.get_name())
            log.error("%s ended by an error", name, exc_info=error)


async def side_by_side(*works: Coroutine[object, object, None]) -> None:
    """Run all to their ends; the first error is raised, and ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_all(*tasks)
