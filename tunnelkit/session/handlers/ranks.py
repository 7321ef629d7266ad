"""`tk ranks`: where every rank of a loop is."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from dataclasses import replace
from weakref import WeakKeyDictionary

from tunnelkit.debug.generation import Generation
from tunnelkit.debug.loop import DebugLoop
from tunnelkit.debug.rank_looks import look
from tunnelkit.debug.ranks.sample import ProcessState, RankSample, RankState
from tunnelkit.debug.ranks.sample_json import to_json
from tunnelkit.debug.ranks.stacks import MovementHistory
from tunnelkit.errors import ConnectionFailed, DebugError, TunnelkitError
from tunnelkit.session.agent.command_output import output_of
from tunnelkit.session.debugging import process_states
from tunnelkit.session.runtime.control_answers import LookInfo, RanksAnswer, RootInfo
from tunnelkit.session.runtime.control_calls import Ranks
from tunnelkit.session.session import Session

#: Limit for what /proc tells; a node may have to start an agent first.
_PROC_S = 2.0
_MOST_GAP_S = 60.0


class RankLooks:
    """Looks at the ranks of a session's runs, and remembers since when they have not moved."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._histories: WeakKeyDictionary[Generation, MovementHistory] = WeakKeyDictionary()

    async def look(self, request: Ranks) -> RanksAnswer:
        """Ask all ranks where they are.

        Raises DebugError if no program runs under the debugger, ConnectionFailed without a link.
        """
        loop = self._session.loops.get(request.loop).loop
        run = _run_of(loop)
        roots = _roots(self._session)
        history = self._histories.setdefault(run, MovementHistory([one["remote"] for one in roots]))
        looks = [await _look(self._session, run, history)]
        if request.gap_s > 0:
            await asyncio.sleep(min(request.gap_s, _MOST_GAP_S))
            looks.append(await _look(self._session, run, history))
        return _answer(loop, run, looks, roots, history)


def _answer(
    loop: DebugLoop,
    run: Generation,
    looks: list[LookInfo],
    roots: list[RootInfo],
    history: MovementHistory,
) -> RanksAnswer:
    last = looks[-1]["samples"]
    since = ((one["rank"], history.since(one["rank"])) for one in last)
    still_s = {str(rank): looks[-1]["time_s"] - at for rank, at in since if at is not None}
    for one in last:
        if (failure := one["failure"]) is not None:
            still_s[str(one["rank"])] = failure["age_s"]
    return {
        "loop": loop.id,
        "command": loop.info.get("shown") or shlex.join(loop.info.get("argv") or []),
        "generation": run.number,
        "world_size": run.world_size,
        "looks": looks,
        "roots": roots,
        "still_s": still_s,
    }


def _roots(session: Session) -> list[RootInfo]:
    mirrors = session.files.mirrors
    return [
        {"local": one.local_root, "remote": one.remote_root}
        for one in (mirrors.all if mirrors is not None else ())
        if one.remote_root
    ]


def _run_of(loop: DebugLoop) -> Generation:
    run = loop.first()
    if run is None or not run.targets or not any(one.armed for one in run.targets):
        raise DebugError(
            "no process of the loop has dialled in",
            cause=f"the loop's state: {loop.state}" if loop.debugs else "it is no Python program",
            hint="see `tk status` and `tk logs`",
        )
    return run


async def _look(session: Session, run: Generation, history: MovementHistory) -> LookInfo:
    clock = asyncio.get_running_loop().time
    begun_s = clock()
    samples = await look(run.targets)
    if any(one.state is RankState.SILENT for one in samples):
        _check_link(session)
        samples = await _with_processes(session, samples)
    history.feed(begun_s, samples)
    return {
        "time_s": begun_s,
        "took_s": clock() - begun_s,
        "samples": [to_json(one) for one in samples],
    }


def _check_link(session: Session) -> None:
    """A rank that can't be reached is not silent. Raises ConnectionFailed."""
    if not session.agent().is_up:
        raise ConnectionFailed(
            "the ranks can't be asked: the connection to the node is lost at the moment",
            hint="tk reconnects by itself; `tk status` shows how it goes",
        )


async def _with_processes(session: Session, samples: list[RankSample]) -> list[RankSample]:
    """Add what /proc tells of ranks that did not answer."""
    silent: dict[str, set[int]] = {}
    for one in samples:
        if one.state is RankState.SILENT:
            silent.setdefault(one.node, set()).add(one.pid)
    by_node = await asyncio.gather(*(_states(session, node, pids) for node, pids in silent.items()))
    states = {
        (node, pid): state
        for node, found in zip(silent, by_node, strict=True)
        for pid, state in found.items()
    }
    return [
        replace(one, process=states.get((one.node, one.pid)))
        if one.state is RankState.SILENT
        else one
        for one in samples
    ]


async def _states(session: Session, node: str, pids: set[int]) -> dict[int, ProcessState]:
    with contextlib.suppress(TunnelkitError, TimeoutError):
        async with asyncio.timeout(_PROC_S):
            agent = await session.agents.on(node)
            output = await output_of(agent, process_states.command(pids), timeout_s=_PROC_S)
            return process_states.parse(output)
    return {}
