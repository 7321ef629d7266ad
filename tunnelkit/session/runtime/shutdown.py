"""Shutdown of a session in steps with time limits: if one hangs, the rest is still done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine

from tunnelkit.errors import TunnelkitError

log = logging.getLogger("tunnelkit.session")

#: Limit for all steps together. When it is used up, each step still gets LEAST_S.
BUDGET_S = 28.0
LEAST_S = 0.5
#: Limit for a cancelled step to end.
_LET_GO_S = 0.5

Work = Coroutine[object, object, object]
#: Name of the step for the log; the work; its limit in seconds.
Step = tuple[str, Work, float]


class ShutdownSequence:
    """One shutdown. A step that takes too long or fails is given up and logged.

    budget_s: limit for all steps together, in seconds, from the construction of this object.
    """

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._deadline = time.monotonic() + budget_s
        #: Names of the steps that took too long.
        self.given_up: list[str] = []

    async def step(self, what: str, work: Work, limit_s: float) -> bool:
        """Run one step; return False if it failed or took too long. Never raises."""
        return (await self.together((what, work, limit_s)))[0]

    async def together(self, *steps: Step) -> list[bool]:
        """Run several steps concurrently; return for each, in order, True if it was done."""
        return list(await asyncio.gather(*(self._one(*step) for step in steps)))

    async def _one(self, what: str, work: Work, limit_s: float) -> bool:
        limit_s = min(limit_s, max(LEAST_S, self._deadline - time.monotonic()))
        task = asyncio.ensure_future(work)
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            self.given_up.append(what)
            log.warning("the end of %s takes over %.1f s: given up", what, limit_s)
            task.cancel()
            # With a limit, too: the step may ignore the cancellation.
            await asyncio.wait([task], timeout=_LET_GO_S)
            task.add_done_callback(_heard)
            return False
        if task.cancelled():
            return False
        error = task.exception()
        if isinstance(error, TunnelkitError):
            log.warning("the end of %s: %s", what, error.one_line())
        elif error is not None:
            log.error("the end of %s met an error", what, exc_info=error)
        return error is None


def _heard(task: asyncio.Future[object]) -> None:
    """Retrieve the error of a task that was given up; asyncio would warn otherwise."""
    if not task.cancelled():
        task.exception()
