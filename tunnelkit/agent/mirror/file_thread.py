"""A thread for what may wait for a file system, and the gate that it closes."""

import asyncio
import queue
import threading
from typing import Any, Callable, Optional, Set, Tuple, TypeVar

_T = TypeVar("_T")
_Job = Tuple["asyncio.Future[Any]", Callable[..., Any], Tuple[Any, ...]]


class FileThread:
    """One thread that does jobs in their order. It starts with the first; `end` it.

    It is a daemon: a file system that hangs must not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # In quotes, and so without a complaint of ruff's: Python 3.8 can't subscript it.
        self._jobs: "queue.SimpleQueue[Optional[_Job]]" = queue.SimpleQueue()  # noqa: UP037
        self._started = False

    def do(self, job: Callable[..., _T], *args: Any) -> "asyncio.Future[_T]":
        """Its result; raises what the job does. To cancel it does not stop the job."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._jobs.put((done, job, args))
        return done

    def end(self) -> None:
        """The thread ends once what it was given is done."""
        if self._started:
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            entry = self._jobs.get()
            if entry is None:
                return
            done, job, args = entry
            result: Any = None
            error: Optional[BaseException] = None
            try:
                result = job(*args)
            except BaseException as failure:
                error = failure
            try:
                done.get_loop().call_soon_threadsafe(_settle, done, result, error)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                return


def _settle(done: "asyncio.Future[Any]", result: Any, error: Optional[BaseException]) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)


class FileGate:
    """Closed while somebody is inside (`with gate:`, from any thread)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: Set[asyncio.Future[None]] = set()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1

    def __exit__(self, *exc: Any) -> None:
        with self._lock:
            self._inside -= 1
            waiting = self._waiting if not self._inside else set()
            if waiting:
                self._waiting = set()
        for future in waiting:
            future.get_loop().call_soon_threadsafe(_settle, future, None, None)

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
