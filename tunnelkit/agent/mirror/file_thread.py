"""A thread for what may wait for a file system, and the gate that it closes."""

import asyncio
import functools
import queue
import threading
from typing import Callable, Optional, Set, TypeVar

_T = TypeVar("_T")
_V = TypeVar("_V")


class FileThread:
    """One thread that does jobs in their order. It starts with the first; `end` it.

    It is a daemon: a file system that hangs must not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # In quotes, and so without a complaint of ruff's: Python 3.8 can't subscript it.
        self._jobs: "queue.SimpleQueue[Optional[Callable[[], None]]]" = queue.SimpleQueue()  # noqa: UP037
        self._started = False

    def do(self, job: Callable[..., _T], *args: object) -> "asyncio.Future[_T]":
        """Its result; raises what the job does. To cancel it does not stop the job."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._jobs.put(functools.partial(_do, done, functools.partial(job, *args)))
        return done

    def end(self) -> None:
        """The thread ends once what it was given is done."""
        if self._started:
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                job()
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                return


def _do(done: "asyncio.Future[_T]", job: Callable[[], _T]) -> None:
    try:
        result = job()
    except BaseException as error:
        _settle(done, done.set_exception, error)
    else:
        _settle(done, done.set_result, result)


def _settle(done: "asyncio.Future[_T]", settle: Callable[[_V], None], value: _V) -> None:
    """From any thread. Raises RuntimeError if the loop is closed."""

    def work() -> None:
        if not done.done():
            settle(value)

    done.get_loop().call_soon_threadsafe(work)


class FileGate:
    """Closed while somebody is inside (`with gate:`, from any thread)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: Set[asyncio.Future[None]] = set()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            waiting = self._waiting if not self._inside else set()
            if waiting:
                self._waiting = set()
        for future in waiting:
            _settle(future, future.set_result, None)

    @property
    def is_open(self) -> bool:
        """True while nobody is inside."""
        return not self._inside

    async def wait_open(self) -> None:
        """Return once nobody is inside; at once, if nobody is."""
        while True:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            with self._lock:
                if not self._inside:
                    return
                self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
