"""Samples of all ranks of a run: they are asked at once, and none is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.ranks.question import Position
from tunnelkit.debug.ranks.sample import Failure, RankSample, RankState

#: A rank that computes in Python answers within 50 ms; one in native code with the GIL does not.
PATIENCE_S = 1.5


async def look(targets: Iterable[DebugTarget], patience_s: float = PATIENCE_S) -> list[RankSample]:
    """Ask where each of them is; in the order of their ranks.

    Of a rank that its launcher has started again, only the newest process is asked.
    """
    newest = {one.who.rank or 0: one for one in targets if one.armed}
    samples = await asyncio.gather(*(_look_at(one, patience_s) for one in newest.values()))
    return sorted(samples, key=lambda one: one.rank)


async def _look_at(target: DebugTarget, patience_s: float) -> RankSample:
    who = target.who
    found = await _ask(target, patience_s)
    state = RankState.SILENT
    if target.over or target.asked is None:
        state, found = RankState.ENDED, None
    raised = target.asked.raised if target.asked is not None else None
    sample = RankSample(
        rank=who.rank or 0,
        node=who.node,
        pid=target.debugged_pid,
        state=state,
        local_rank=who.local_rank,
    )
    if found is None:
        return sample
    failure = raised.failure(asyncio.get_running_loop().time()) if raised is not None else None
    return replace(
        sample,
        state=found["state"],
        frames=found["frames"],
        instruction=found["instruction"],
        cpu_s=found["cpu_s"],
        groups=found["groups"],
        # It may have stopped a moment ago, or before this session was there.
        failure=(failure or Failure(found["failed"], found["text"])) if found["failed"] else None,
    )


async def _ask(target: DebugTarget, patience_s: float) -> Position | None:
    shared = target.asked
    if shared is None:
        return None
    # One that has not answered the last question would only have more to answer.
    question = shared.look
    if question is None or question.done():
        question = shared.look = asyncio.create_task(shared.position())
    done, _ = await asyncio.wait([question], timeout=patience_s)
    return question.result() if done else None
