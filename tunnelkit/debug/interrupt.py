"""Pauses processes from outside of their editors and consoles, which then show them stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.loop_status import InterruptStatus, Pause
from tunnelkit.debug.rank_looks import look
from tunnelkit.debug.ranks.frames import Project
from tunnelkit.debug.ranks_view.describe import place_text

#: Of a place in a line of text.
_COLUMNS = 60
#: It stands, so it answers; the first question to a process compiles code there.
_PATIENCE_S = 5.0


async def interrupt(targets: Iterable[DebugTarget], roots: Sequence[str]) -> list[InterruptStatus]:
    """Pause these processes all at once; say for each what came of it.

    One that neither an editor nor a console is on is left alone: nobody would see it stand.
    roots: the project's directories on the node.
    """
    project = Project(roots)
    return list(await asyncio.gather(*(_interrupt(one, project) for one in targets)))


async def _interrupt(target: DebugTarget, project: Project) -> InterruptStatus:
    state = await _pause(target)
    where = await _place(target, project) if state == "paused" else ""
    return {
        "rank": target.who.rank,
        "node": target.who.node,
        "pid": target.debugged_pid,
        "paused": state == "paused",
        "state": state,
        "where": where,
    }


async def _pause(target: DebugTarget) -> Pause:
    if target.over:
        return "ended"
    if not (target.is_debugged or target.watched):
        return "nobody"
    if not target.attached:
        return "waiting"
    if await target.interrupt():
        return "paused"
    return "ended" if target.over else "native"


async def _place(target: DebugTarget, project: Project) -> str:
    """The place of a process that stands: `train.py:88 step`; "" if it does not say."""
    for sample in await look([target], _PATIENCE_S):
        if sample.frames:
            return place_text(project, project.normal_form(sample.frames), _COLUMNS)
    return ""
