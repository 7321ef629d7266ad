"""Pauses a program from outside of its editor, which then shows it stopped."""

from __future__ import annotations

import asyncio

from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.generation import Generation
from tunnelkit.debug.loop_status import InterruptStatus
from tunnelkit.errors import DebugError

_HINT = "press F5 first; a process that runs without a debugger: tk attach"


async def interrupt(generation: Generation | None, rank: int | None) -> list[InterruptStatus]:
    """Pause all of a run that editors debug, or one rank of it.

    Raises DebugError if no editor debugs it.
    """
    targets = _targets(generation, rank)
    stopped = await asyncio.gather(*(one.interrupt() for one in targets))
    return [
        {
            "rank": one.who.rank,
            "node": one.who.node,
            "pid": one.debugged_pid,
            "paused": paused,
        }
        for one, paused in zip(targets, stopped, strict=True)
    ]


def _targets(generation: Generation | None, rank: int | None) -> list[DebugTarget]:
    if generation is None:
        raise DebugError("nothing runs that could be paused", hint="see `tk status`")
    if rank is None:
        found = [one for one in generation.targets if one.is_debugged]
        if not found:
            raise DebugError("no editor debugs the program, so nothing can pause it", hint=_HINT)
        return found
    if not generation.ranked:
        raise DebugError("the loop's program has no ranks", hint="without a rank: tk interrupt")
    target = generation.rank(rank)
    if target is None or target.over:
        there = [str(one.who.rank) for one in generation.targets if not one.over]
        raise DebugError(
            f"no rank {rank} is there",
            cause=f"ranks: {', '.join(there) or 'none'}",
            hint="name one of these, or none for all",
        )
    if not target.is_debugged:
        raise DebugError(f"no editor debugs {target.who.name}, so nothing can pause it", hint=_HINT)
    return [target]
