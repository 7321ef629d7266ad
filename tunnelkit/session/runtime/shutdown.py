"""The end of a session in bounded steps: whatever hangs, the rest is still done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from tunnelkit.errors import TunnelkitError

log = logging.getLogger("tunnelkit.session")

#: All steps together; each may still have the least when that is used up.
BUDGET_S = 28.0
LEAST_S = 0.5
#: A step that was cancelled has this long to let go.
_LET_GO_S = 0.5

#: What it is, for the log; the work; how many seconds it may take.
Step = tuple[str, Coroutine[Any, Any, Any], float]


class ShutdownSequence:
    """One end. A step that takes too long, or fails, is given up and the log says so.

    budget_s: what all steps may take together. Begins to count when it is made.
    """

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._deadline = time.monotonic() + budget_s
        #: What was given up.
        self.given_up: list[str] = []

    async def step(self, what: str, work: Coroutine[Any, Any, Any], limit_s: float) -> bool:
        """Do one thing; False if it failed or took too long. Never raises."""
        return (await self.together((what, work, limit_s)))[0]

    async def together(self, *steps: Step) -> list[bool]:
        """Several that don't wait for each other; in their order, whether each was done."""
        return list(await asyncio.gather(*(self._one(*step) for step in steps)))

    async def _one(self, what: str, work: Coroutine[Any, Any, Any], limit_s: float) -> bool:
        limit_s = min(limit_s, max(LEAST_S, self._deadline - time.monotonic()))
        task = asyncio.ensure_future(work)
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            self.given_up.append(what)
            log.warning("the end of %s takes over %.1f s: given up", what, limit_s)
            task.cancel()
            # Bounded, too: it may not listen.
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


def _heard(task: asyncio.Future[Any]) -> None:
    """Its error is of no interest any more; unheard, asyncio would complain."""
    if not task.cancelled():
        task.exception()
