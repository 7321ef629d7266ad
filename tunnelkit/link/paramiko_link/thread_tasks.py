"""Blocking work in threads that have an owner and an end, seen from asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")

#: How long a cancelled thread is given to see that it was aborted.
_ABORT_S = 5.0


def start_thread(name: str, body: Callable[[], None]) -> threading.Thread:
    """A daemon: a hung peer must not keep the interpreter from its end."""
    thread = threading.Thread(target=body, name=f"tk-link {name}", daemon=True)
    thread.start()
    return thread


async def in_thread(name: str, work: Callable[[], T], *, abort: Callable[[], None]) -> T:
    """The result of `work`, done in a thread of its own. When this is cancelled, `abort` has
    to make `work` return soon; that is waited for, but not without end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not done.cancelled():
            outcome()

    def body() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(done.set_result, work())
        except BaseException as error:
            outcome = partial(done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, outcome)

    thread = start_thread(name, body)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        abort()
        await asyncio.wait({done}, timeout=_ABORT_S)
        if done.done() and not done.cancelled():
            done.exception()  # its owner has the error; nobody reads it any more
        raise
    finally:
        if done.done():
            thread.join()  # it has said its last word
