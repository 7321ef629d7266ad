"""`tk attach`: finds processes on the nodes of the job, and brings a debugger into them."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence

from tunnelkit.debug.attachment import Attachment
from tunnelkit.debug.ranks.fold import fold_ranks
from tunnelkit.debug.ranks.roster import Roster, RosterEntry
from tunnelkit.debug.ranks.sample import RankState
from tunnelkit.errors import DebugError, TunnelkitError
from tunnelkit.local_ports import is_free
from tunnelkit.messages.agent_calls import EXEC_PROBE, JOBS_OWN, PythonInfo
from tunnelkit.session.debugging.debugpy_upload import upload_debugpy
from tunnelkit.session.debugging.rank_processes import newest_run, rank_processes
from tunnelkit.session.handlers.interrupt import chosen_ranks
from tunnelkit.session.handlers.job_processes import JobPythons, find_pythons
from tunnelkit.session.runtime.control_answers import (
    AttachAnswer,
    AttachedAnswer,
    AttachedRanksAnswer,
    FailedAttach,
    ProcessInfo,
)
from tunnelkit.session.runtime.control_calls import Attach
from tunnelkit.session.session import Session

#: More than the agent gives the injector (agent/debug/injection.py).
_TIMEOUT_S = 150.0
#: Injectors at once: each is a gdb that reads the symbols of all libraries.
_AT_ONCE = 4
_LIST = "`tk attach` lists what can be attached to"


async def attach(session: Session, request: Attach) -> AttachAnswer:
    """Attach to a rank or pid, or to the only process there is; or to the selected ranks.

    The answer has `choices` if several processes match.
    Raises DebugError, with cause and hint, if there is no process to attach to.
    """
    if request.standing:
        return await _attach_standing(session)
    if request.selection is not None:
        return await _attach_ranks(session, request.selection, request.port)
    if request.target is None:
        chosen = _only(session, await find_pythons(session))
    else:
        chosen = await _named(session, request.target)
    if len(chosen) > 1:
        return {"choices": [_shown(one) for one in chosen]}
    return await _attach_to(session, chosen[0], request.port)


async def _attach_standing(session: Session) -> AttachAnswer:
    """Attach to the first program that stands at an exception in the job's own script.

    The answer has no `choices` if none does."""
    found = await find_pythons(session)
    standing = [one for one in found.processes if not one["run"]]
    free = [one for one in standing if not one["why_not"]]
    again = [one for one in standing if _attachment(session, one) is not None]
    if not free + again:
        return {"choices": []}
    first = min(again or free, key=lambda one: (one["rank"] or 0, one["pid"]))
    return await _attach_to(session, first, None)


# -- one process ------------------------------------------------------------


async def _attach_to(session: Session, process: PythonInfo, port: int | None) -> AttachedAnswer:
    """Attach to a process, or say that it is attached already. Raises TunnelkitError."""
    running = _attachment(session, process)
    if running is not None:
        ready = await running.wait_attached()
        return _answer(session, running, process, ready=ready, again=True)
    if process["why_not"]:
        what = f"process {process['pid']}"
        if process["rank"] is not None:
            what = f"rank {process['rank']}"
        raise DebugError(
            f"{what} can't be attached to",
            cause=process["why_not"],
            hint=_LIST,
        )
    node = process["node"]
    started = await session.loops.attach(
        {
            "pid": process["pid"],
            "shown": shlex.join(process["command"]),
            "pythonpath": await _lent(session, process),
            "first": session.agents.pid,
        },
        await session.agents.loops_on(node),
        node,
        port=port,
    )
    # A console on other ranks takes this one, too.
    session.states.poke()
    if node != session.agents.node:
        session.attached_nodes.add(node)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            ready = await started.wait_attached()
    except (DebugError, TimeoutError) as error:
        await session.loops.stop(started.id)
        if isinstance(error, DebugError):
            raise
        raise DebugError(
            f"process {started.pid} on {node} could not be attached to in {_TIMEOUT_S:.0f} s",
            hint="is it stopped, or long in native code? try again",
        ) from None
    return _answer(session, started, process, ready=ready, again=False)


def _attachment(session: Session, process: PythonInfo) -> Attachment | None:
    attached = session.loops.attachments()
    there = (one for one in attached if (one.node, one.pid) == (process["node"], process["pid"]))
    return next(there, None)


async def _lent(session: Session, process: PythonInfo) -> str | None:
    """Upload debugpy for an interpreter that has none; return its directory."""
    probe = [process["python"], "-c", "import debugpy"]
    agent = await session.agents.on(process["node"])
    if await EXEC_PROBE.ask(agent, {"argv": probe}) in (0, None):
        return None
    node = process["node"]
    base = session.cluster.base_on(node)
    own = node in session.cluster.allocated.bases
    return await upload_debugpy(session.link, base, node if own else session.cluster.files_node)


# -- which one ----------------------------------------------------------------


def _only(session: Session, found: JobPythons) -> list[PythonInfo]:
    """Return the process that has no debugger, or all that match. Raises DebugError."""
    free = [one for one in found.processes if not one["why_not"]]
    programs = [one for one in free if not one["launcher"]]
    if programs or free:
        return programs or free
    attached = [one for one in found.processes if _attachment(session, one) is not None]
    if len(attached) == 1:
        return attached
    _check_reached(found)
    raise DebugError(
        f"no Python without a debugger runs on {', '.join(session.agents.nodes[:3])}",
        cause="; ".join(f"{one['pid']}: {one['why_not']}" for one in found.processes[:8]) or None,
        hint="start one: tk run python FILE",
    )


async def _named(session: Session, number: int) -> list[PythonInfo]:
    """Return the processes of a rank, else the one with that pid. Raises DebugError.

    Other nodes are asked only where the first one has neither.
    """
    first, *others = session.agents.nodes
    here = await find_pythons(session, [first])
    there: JobPythons | None = None
    found = _of_rank(here, number) or [one for one in here.processes if one["pid"] == number]
    if not found and others:
        there = await find_pythons(session, others)
        found = _of_rank(there, number)
    for node in () if found else session.agents.nodes:
        found += (await find_pythons(session, [node], number)).processes
    if found:
        return found
    if there is not None:
        _check_reached(there)
    raise DebugError(
        f"neither a rank nor a process {number} of this job is on "
        f"{', '.join(session.agents.nodes[:3])}",
        hint=_LIST,
    )


def _of_rank(found: JobPythons, rank: int) -> list[PythonInfo]:
    """Return the main processes of a rank; if it has several, those without a debugger."""
    ranks = [one for one in rank_processes(found.processes) if one["rank"] == rank]
    return [one for one in ranks if not one["why_not"]] or ranks[:1]


def _check_reached(found: JobPythons) -> None:
    """Raise the first error of the nodes that could not be asked."""
    for error in found.unreached.values():
        raise error


# -- a selection ------------------------------------------------------------


async def _attach_ranks(session: Session, selection: str, port: int | None) -> AttachedRanksAnswer:
    """Attach to all selected ranks that can be attached to. Raises DebugError, SelectionError.

    The lowest gets `port`, else the session's; the others the port that their rank has under
    `tk loop`, if that is free.
    """
    found = await find_pythons(session)
    ranks = newest_run(rank_processes(found.processes))
    by_rank = {one["rank"] or 0: one for one in ranks}
    if not ranks:
        _check_reached(found)
        raise DebugError(
            f"no Python on {', '.join(session.agents.nodes[:3])} is a rank",
            hint="start ranks: tk run srun ..., or tk run torchrun ...",
        )
    if len(ranks) > len(by_rank):
        twice = [rank for rank in by_rank if sum(one["rank"] == rank for one in ranks) > 1]
        raise DebugError(
            f"several processes are rank {fold_ranks(twice)}",
            cause=", ".join(f"pid {one['pid']}" for one in ranks if one["rank"] in twice),
            hint="name one: tk attach PID",
        )
    chosen = chosen_ranks(selection, _roster(session, ranks))
    slots = asyncio.Semaphore(_AT_ONCE)
    answer: AttachedRanksAnswer = {"ranks": [], "failed": []}

    async def one(rank: int) -> AttachedAnswer | FailedAttach:
        own = port if rank == chosen[0] else _port(session, rank)
        async with slots:
            return await _try(session, by_rank[rank], own)

    for done in await asyncio.gather(*map(one, chosen)):
        if "failure" in done:
            answer["failed"].append(done)
        else:
            answer["ranks"].append(done)
    return answer


async def _try(
    session: Session, process: PythonInfo, port: int | None
) -> AttachedAnswer | FailedAttach:
    try:
        return await _attach_to(session, process, port)
    except TunnelkitError as error:
        return {
            "rank": process["rank"],
            "node": process["node"],
            "pid": process["pid"],
            "failure": error.to_json(),
        }


def _port(session: Session, rank: int) -> int:
    """Return the port of a rank beside the session's; 0, any port, if another program has it."""
    port = session.editor_port.port + rank
    return port if rank and port <= 65535 and is_free(port) else 0


def _roster(session: Session, ranks: Sequence[PythonInfo]) -> Roster:
    return Roster(
        tuple(
            RosterEntry(one["rank"] or 0, one["node"], one["local"], RankState.RUNNING)
            for one in ranks
        )
    )


# -- answers ------------------------------------------------------------------


def _shown(one: PythonInfo) -> ProcessInfo:
    return {
        "pid": one["pid"],
        "rank": one["rank"],
        "node": one["node"],
        "command": one["command"],
        "launcher": one["launcher"],
    }


def _answer(
    session: Session, attachment: Attachment, process: PythonInfo, *, ready: bool, again: bool
) -> AttachedAnswer:
    is_own = process["run"] == JOBS_OWN
    return {
        "attached": attachment.pid,
        "node": process["node"],
        "loop": attachment.id,
        "port": attachment.port,
        "rank": process["rank"],
        "command": process["command"],
        "ready": ready,
        "again": again,
        "risk": session.cluster.allocated.risks.get(process["node"], "") if is_own else "",
    }
