"""One set of probes for all who look at the same job through a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from tunnelkit.diagnosis.top.frame import TopInfo
from tunnelkit.diagnosis.top.history import TopHistory
from tunnelkit.errors import TunnelkitError
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.top.job_top import JobTop

_MOST_HISTORIES = 8


class SharedTops:
    """Keeps the histories as long as the session lives; probes run only while somebody looks."""

    def __init__(self) -> None:
        self._shared: dict[str, _Shared] = {}
        self._histories: dict[str, TopHistory] = {}

    def history(self, job_id: str) -> TopHistory:
        """Return the history of a job."""
        found = self._histories.pop(job_id, None) or TopHistory()
        self._histories[job_id] = found
        while len(self._histories) > _MOST_HISTORIES:
            self._histories.pop(next(iter(self._histories)))
        return found

    async def frames(
        self, job_id: str, nodes: Sequence[str], make: Callable[[], JobTop]
    ) -> AsyncGenerator[TopInfo]:
        """Yield frames. make: called if nobody looks at that job yet. nodes: as for, and raises
        as `JobTop.frames`."""
        shared = self._shared.get(job_id)
        if shared is None:
            shared = self._shared[job_id] = _Shared(make(), job_id, nodes)
        shared.watchers += 1
        try:
            async with aclosing(shared.frames()) as frames:
                async for frame in frames:
                    yield frame
        finally:
            shared.watchers -= 1
            if not shared.watchers and self._shared.get(job_id) is shared:
                del self._shared[job_id]
                await shared.end()


class _Shared:
    """The frames of one job, the newest for everybody."""

    def __init__(self, top: JobTop, job_id: str, nodes: Sequence[str]) -> None:
        self.watchers = 0
        self._newest: TopInfo | None = None
        self._failure: TunnelkitError | None = None
        self._over = False
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(top.frames(job_id, nodes)))

    async def _run(self, source: AsyncGenerator[TopInfo]) -> None:
        try:
            async with aclosing(source) as frames:
                async for frame in frames:
                    self._newest = frame
                    self._wake()
        except TunnelkitError as error:
            self._failure = error
        finally:
            self._over = True
            self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def frames(self) -> AsyncGenerator[TopInfo]:
        shown: TopInfo | None = None
        while True:
            changed = self._changed
            if self._newest is not None and self._newest is not shown:
                shown = self._newest
                yield shown
                continue
            if self._failure is not None:
                raise self._failure
            if self._over:
                return
            await changed.wait()

    async def end(self) -> None:
        await cancel_all(self._task)
