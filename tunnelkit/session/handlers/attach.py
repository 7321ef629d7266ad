"""`tk attach`: finds the process, and brings a debugger into it."""

from __future__ import annotations

import asyncio
import shlex

from tunnelkit.debug.attachment import Attachment
from tunnelkit.errors import DebugError
from tunnelkit.messages.agent_calls import ATTACH_FIND, EXEC_PROBE, PythonInfo
from tunnelkit.session.debugging.debugpy_upload import upload_debugpy
from tunnelkit.session.runtime.control_answers import AttachAnswer, AttachedAnswer, ProcessInfo
from tunnelkit.session.runtime.control_calls import Attach
from tunnelkit.session.session import Session

#: More than the agent gives the injector (agent/debug/injection.py).
_TIMEOUT_S = 150.0


async def attach(session: Session, request: Attach) -> AttachAnswer:
    """Attach to a rank or pid, or to the only process there is.

    The answer has `choices` if several processes match.
    Raises DebugError, with cause and hint, if there is no process to attach to.
    """
    node = session.agents.node
    target = request.target
    found = await ATTACH_FIND.ask(session.agent(), {})
    running = session.loops.attachment(_pid_of(found, target))
    if running is not None:
        ready = await running.wait_attached()
        return _answer(running, _process_of(found, running.pid), ready=ready, again=True)
    chosen = await _choose(session, found, target, node)
    if isinstance(chosen, list):
        return {"choices": [_shown(one) for one in chosen]}
    started = await session.loops.attach(
        {
            "pid": chosen["pid"],
            "shown": shlex.join(chosen["command"]),
            "pythonpath": await _lent(session, chosen["python"]),
        },
        port=request.port,
    )
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
    return _answer(started, chosen, ready=ready, again=False)


def _pid_of(found: list[PythonInfo], target: int | None) -> int | None:
    """Return the wanted pid if it is known already."""
    ranks = [one["pid"] for one in found if target is not None and one["rank"] == target]
    return ranks[0] if ranks else target


def _process_of(found: list[PythonInfo], pid: int) -> PythonInfo | None:
    return next((one for one in found if one["pid"] == pid), None)


async def _choose(
    session: Session, found: list[PythonInfo], target: int | None, node: str
) -> PythonInfo | list[PythonInfo]:
    """Return the process, or all that match. Raises DebugError."""
    free = [one for one in found if not one["why_not"]]
    if target is None:
        programs = [one for one in free if not one["launcher"]]
        if programs:
            return programs[0] if len(programs) == 1 else programs
        if not free:
            raise DebugError(
                f"no Python without a debugger runs on {node}",
                cause="; ".join(f"{one['pid']}: {one['why_not']}" for one in found) or None,
                hint="start one: tk run python FILE",
            )
        return free
    ranks = [one for one in found if one["rank"] == target]
    free_ranks = [one for one in ranks if not one["why_not"]]
    if free_ranks:
        return free_ranks[0] if len(free_ranks) == 1 else free_ranks
    if ranks:
        raise _refused(f"rank {target}", ranks[0])
    by_pid = await ATTACH_FIND.ask(session.agent(), {"pid": target})
    if not by_pid:
        raise DebugError(
            f"neither a rank nor a process {target} that tk has started is on {node}",
            hint="`tk attach` alone lists what there is; ranks on other nodes can't be attached "
            "to, only debugged from the start: tk loop --rank RANKS",
        )
    if by_pid[0]["why_not"]:
        raise _refused(f"process {target}", by_pid[0])
    return by_pid[0]


def _refused(what: str, process: PythonInfo) -> DebugError:
    return DebugError(
        f"{what} can't be attached to",
        cause=process["why_not"],
        hint="`tk attach` lists what can be attached to",
    )


async def _lent(session: Session, python: str) -> str | None:
    """Upload debugpy for an interpreter that has none; return its directory."""
    probe = [python, "-c", "import debugpy"]
    if await EXEC_PROBE.ask(session.agent(), {"argv": probe}) in (0, None):
        return None
    return await upload_debugpy(
        session.link, session.cluster.setup.installed.base, session.cluster.files_node
    )


def _shown(one: PythonInfo) -> ProcessInfo:
    return {
        "pid": one["pid"],
        "rank": one["rank"],
        "node": one["node"],
        "command": one["command"],
        "launcher": one["launcher"],
    }


def _answer(
    attachment: Attachment, process: PythonInfo | None, *, ready: bool, again: bool
) -> AttachedAnswer:
    return {
        "attached": attachment.pid,
        "loop": attachment.id,
        "port": attachment.port,
        "rank": process["rank"] if process is not None else None,
        "command": process["command"] if process is not None else [],
        "ready": ready,
        "again": again,
    }
