"""Pauses processes from outside of their editors and consoles, which then show them stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tunnelkit.debug.debug_target import DebugTarget
from tunnelkit.debug.loop_status import InterruptStatus, Pause
from tunnelkit.debug.rank_looks import look
from tunnelkit.debug.ranks.frames import Project
from tunnelkit.debug.ranks.sample import RankSample, RankState
from tunnelkit.debug.ranks_view.describe import place_text

#: Of a place in a line of text.
_COLUMNS = 60
#: It stands, so it answers; the first question to a process compiles code there.
_PATIENCE_S = 5.0
#: A thread has stopped; the main one has this long to do so, too, and is asked so often.
_MAIN_S, _AGAIN_S = 3.0, 0.1
_STATES: dict[RankState, Pause] = {RankState.STOPPED: "paused", RankState.ENDED: "ended"}


async def interrupt(targets: Iterable[DebugTarget], roots: Sequence[str]) -> list[InterruptStatus]:
    """Pause these processes all at once; say for each what came of it.

    One that neither an editor nor a console is on is left alone: nobody would see it stand.
    roots: the project's directories on the node.
    """
    project = Project(roots)
    return list(await asyncio.gather(*(_interrupt(one, project) for one in targets)))


async def _interrupt(target: DebugTarget, project: Project) -> InterruptStatus:
    state, where = await _pause(target), ""
    if state == "paused":
        sample = await _main_thread(target)
        # Other threads may stand while the main one is in native code.
        state = _STATES.get(sample.state, "native") if sample is not None else "native"
        where = _place(sample, project) if sample is not None and state == "paused" else ""
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


async def _main_thread(target: DebugTarget) -> RankSample | None:
    """Return where the main thread stands, or what it does if it has not stopped in time.

    The debugger tells of the first thread that stops only.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _MAIN_S
    while True:
        (sample,) = await look([target], _PATIENCE_S) or (None,)
        if sample is None or sample.state is not RankState.RUNNING or loop.time() > end_s:
            return sample
        await asyncio.sleep(_AGAIN_S)


def _place(sample: RankSample, project: Project) -> str:
    """The place of a process that stands: `train.py:88 step`; "" if it does not say."""
    if not sample.frames:
        return ""
    return place_text(project, project.normal_form(sample.frames), _COLUMNS)
