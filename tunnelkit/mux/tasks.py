"""Helpers for asyncio tasks and futures."""

import asyncio
from typing import Any, Coroutine, Optional, Set, TypeVar

T = TypeVar("T")


async def first_of(*futures: "asyncio.Future[Any]") -> None:
    """Return once one of the futures is done; cancels none of them."""
    await asyncio.wait(list(futures), return_when=asyncio.FIRST_COMPLETED)


async def cancel_all(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel tasks and wait until they are over; their results and errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def unless(event: asyncio.Event, work: "Coroutine[object, object, T]") -> Optional[T]:
    """Return the result of `work`; None, with the work cancelled, if the event comes first."""
    task, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await first_of(task, waiting)
        return task.result() if task.done() else None
    finally:
        await cancel_all(task, waiting)


def start(tasks: "Set[asyncio.Task[T]]", work: "Coroutine[object, object, T]") -> "asyncio.Task[T]":
    """Run `work` as a task that stays in `tasks` until it is done; their owner cancels the rest."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
